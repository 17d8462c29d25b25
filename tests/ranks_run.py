"""One case of two processes; each rank writes what it saw to a file of its own."""

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.exchange import Exchange
from sanity_watchdog.records import alert_to_dict

from .runs import blobs, mlp

STEPS = 40


class Net(L.LightningModule):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case, self.net = case, mlp()
        self.start = [p.detach().clone() for p in self.net.parameters()]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        on_one = self.global_rank == 1
        if self.case == "dying" and on_one and self.global_step == 6:
            os._exit(9)
        out = self.net(x)
        if self.case == "softmax-on-one" and on_one:
            out = out.softmax(-1)
        loss = F.cross_entropy(out, y)
        return loss * float("nan") if self.case == "one-nan" and on_one and self.global_step == 5 else loss

    def on_train_batch_end(self, *_: Any) -> None:
        if self.case == "diverging" and self.global_step == 3:
            with torch.no_grad():
                self.net[2].weight += 1e-3 * self.global_rank

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


class Counted(Exchange):
    """Counts what is sent."""

    sets: list[int] = []  # noqa: RUF012

    def post(self, message: Any) -> None:
        self.sets.append(len(json.dumps(message, default=str)))
        super().post(message)


def main(case: str, folder: Path, ranks: int, options: dict[str, Any]) -> None:
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    import sanity_watchdog.watch as watch

    watch.Exchange = Counted  # type: ignore[misc]
    L.seed_everything(1, verbose=False)
    net, dataset = Net(case), TensorDataset(*blobs(512))
    shared = case == "shared-data"
    data = DataLoader(dataset, 16, sampler=RandomSampler(dataset) if shared else None, shuffle=None if shared else True)
    watched = options.pop("watched", True)
    dog = SanityWatchdog(**{"fail_on": None, "record": folder / "watchdog.jsonl", **options})
    trainer = L.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp",
        max_steps=STEPS,
        callbacks=[dog] if watched else [],
        use_distributed_sampler=not shared,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    error = ""
    try:
        trainer.fit(net, data)
    except BaseException as e:
        error = type(e).__name__
        raise
    finally:
        seen = {
            "error": error,
            "alerts": [alert_to_dict(a) for a in dog.alerts],
            "judged": list(dog.summary.judged),
            "broken": dict(dog.summary.broken),
            "attempts": dog.summary.attempts,
            "samples": sum(1 for n in range(STEPS) if n in (0, 1, 2, 3, 5, 8, 13, 21, 34)),
            "sets": len(Counted.sets),
            "longest": max(Counted.sets, default=0),
            "moved": any(not torch.equal(a, b) for a, b in zip(net.start, net.net.parameters(), strict=True)),
        }
        (folder / f"{os.environ.get('LOCAL_RANK', '0')}.json").write_text(json.dumps(seen, default=str))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
