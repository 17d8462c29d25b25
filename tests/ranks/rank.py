"""One rank of a run: trains a case, and writes down what its watchdog saw and what the training left."""

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.utils._pytree
from lightning.pytorch.loggers import TensorBoardLogger

import tests.identity_runs
from sanity_watchdog import SanityWatchdog, watch
from sanity_watchdog.exchange import Exchange
from sanity_watchdog.records import alert_to_dict

from .cases import Case
from .sharded import CASES


class Counted(Exchange):
    """Counts what is sent."""

    lengths: list[int] = []  # noqa: RUF012

    def _send(self, key: str, text: str) -> None:
        self.lengths.append(len(text))
        super()._send(key, text)


class Closing(L.Callback):
    """Writes ``seen<rank>.json``: alerts, what was judged, how the fit ended, hashes of what it left."""

    def __init__(self, folder: Path, dog: SanityWatchdog) -> None:
        self.folder, self.dog = folder, dog
        self.samples = 0

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        watching = self.dog._watch
        self.samples += watching is not None and watching.now.sampled

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        self._write(trainer, module, f"{type(error).__name__}: {error}")

    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        self._write(trainer, module, "")

    def _write(self, trainer: Any, module: Any, error: str) -> None:
        path = self.folder / f"seen{trainer.global_rank}.json"
        if path.exists():
            return
        summary = self.dog.summary
        seen = {
            "error": error,
            "verdict": self.dog.verdict,
            "alerts": [alert_to_dict(a) for a in self.dog.alerts],
            "judged": summary.judged,
            "skipped": dict(summary.skipped),
            "broken": dict(summary.broken),
            "attempts": summary.attempts,
            "batches": trainer.fit_loop.total_batch_idx + 1,
            "steps": trainer.global_step,
            "samples": self.samples,
            "sent": Counted.lengths,
            "weights": digest(dict(module.state_dict())),
            "optimizers": digest([o.state_dict() for o in trainer.optimizers]),
            "generator": digest(torch.get_rng_state()),
            "losses": digest(getattr(module, "losses", [])),
            "metrics": digest(dict(trainer.callback_metrics)),
        }
        path.write_text(json.dumps(seen, default=str))


def digest(value: Any) -> str:
    """A hash of nested data, of this rank's shards where it is sharded."""
    return tests.identity_runs.digest(torch.utils._pytree.tree_map(lambda v: getattr(v, "_local_tensor", v), value))


def run_rank(case: str, folder: Path, world: int, options: dict[str, Any], launcher: str = "ddp") -> None:
    """Train.

    Args:
        case: a name of ``cases`` or of the corpus.
        options: arguments of the watchdog, but for ``watched`` (is there one?), ``seed``, ``logger`` (log with
            TensorBoard?) and ``trainer`` (arguments of the Trainer).
    """
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    watch.Exchange = Counted  # type: ignore[misc]
    watched, logged = options.pop("watched", True), options.pop("logger", False)
    L.seed_everything(options.pop("seed", 1), verbose=False)
    module, data, settings = CASES[case](world) if case in CASES else of_corpus(case)
    settings |= options.pop("trainer", {})
    dog = SanityWatchdog(**{"fail_on": None, "record": folder / "watchdog.jsonl", **options})
    trainer = L.Trainer(
        **{
            "accelerator": "cpu",
            "devices": world,
            "strategy": launcher,
            "max_steps": 24,
            "callbacks": [*([dog] if watched else []), *settings.pop("callbacks", []), Closing(folder, dog)],
            "logger": TensorBoardLogger(folder, name="logs") if logged else False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
            "num_sanity_val_steps": 0,
            **settings,
        }
    )
    trainer.fit(module, data)


def of_corpus(name: str) -> Case:
    """A case of two processes."""
    from tests.corpus import CASES as CORPUS
    from tests.corpus.run import DEFAULTS

    module, data, settings = CORPUS[name].build()
    return module, data, {**DEFAULTS, **settings}


if __name__ == "__main__":
    launcher, case, folder, world, options = sys.argv[1:]
    run_rank(case, Path(folder), int(world), json.loads(options), launcher)
