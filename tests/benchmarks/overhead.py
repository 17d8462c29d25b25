"""What watching costs: the same training watched and unwatched in turn, as ratios of CPU time.

    python -m tests.benchmarks.overhead                       all workloads, an hour on one core
    python -m tests.benchmarks.overhead --only cnn,gpt --rounds 3 --json overhead.json

``steady`` is the time of training steps after the early looks, over whole periods of the watchdog's later ones: from
step 56, or in the long runs after the first thousand steps; ``smoke`` a whole ``fit`` of 20 steps.

In each round every way of training is a new process: plain, with a callback that does nothing, with the watchdog, with
Lightning's ``detect_anomaly``, and with torch-audit (``pip install torch-audit``; left out where it is missing) at each
step and at every 101st, as often as the watchdog. They take turns after some ten milliseconds of steps, one at a time
on the same core, so that what else the machine does for longer than that meets all of them alike. Of each step, and of
each smoke run, the median over the rounds is taken; the range is that of the rounds. The long runs are one turn each:
in those the watchdog looks as often as its share of the time allows, and the turns of others would count as time. They
are compared with the first two only, and have no smoke run of their own. ``looks`` is the part of the steady state in
which the watchdog looks closely, by steps of the same process: processes differ by where their memory lies, which for
convolutions can be more than ten per cent.
"""

import argparse
import json
import logging
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from queue import Empty
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe import sampling

ROUNDS = {"mlp-long": 2, "cnn": 2}
"""Rounds of workloads that are quick or whose ratios scatter, for each one of another."""
SMOKES = 5
"""Smoke runs a round."""
SMOKE = 20
EARLY, SETTLED = max(sampling.EARLY) + 1, sampling.PAIRS * sampling.EVERY + 2
"""Steps after the early looks, and after those that are taken whatever they cost."""
RARE = sampling.STRIDE * sampling.EVERY
"""Steps from one look to the next where steps are short."""


class Plain(L.LightningModule):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        out = self.net(x)
        return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


class GPT(nn.Module):
    """Pre-norm decoder; token ids (B, T) to logits (B, T, V)."""

    def __init__(self, vocabulary: int = 512, width: int = 192, layers: int = 4, length: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        for module in (self.token, self.position, self.head):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.body(self.token(ids) + self.position(torch.arange(length)), mask=mask, is_causal=True))


class Many(nn.Module):
    """Ten thousand small parameters."""

    def __init__(self, n: int = 10_000) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(16) * 0.1 + 1) for _ in range(n)])
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x * scale.tanh() + 0.01
        return self.head(x)


@dataclass
class Work:
    """A training, the steps of which the time is taken, so many after the first, and how many are a turn."""

    module: Plain
    data: TensorDataset
    batch_size: int = 32
    first: int = EARLY
    steps: int = 2 * sampling.EVERY
    turn: int = 1


def classes(*shape: int, n: int = 512) -> TensorDataset:
    return TensorDataset(torch.randn(n, *shape), torch.randint(0, 10, (n,)))


def mlp() -> Work:
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return Work(Plain(net), classes(64), steps=6 * sampling.EVERY, turn=50)


def mlp_long() -> Work:
    return replace(mlp(), first=SETTLED, steps=3 * RARE, turn=SETTLED + 3 * RARE)


def deep() -> Work:
    layers = [m for _ in range(100) for m in (nn.Linear(64, 64), nn.ReLU())]
    return Work(Plain(nn.Sequential(*layers, nn.Linear(64, 10))), classes(64))


def deep_long() -> Work:
    return replace(deep(), first=SETTLED, steps=RARE, turn=SETTLED + RARE)


def cnn() -> Work:
    body: list[nn.Module] = []
    for inside, outside, stride in ((3, 32, 1), (32, 64, 2), (64, 64, 2)):
        body += [nn.Conv2d(inside, outside, 3, stride, 1), nn.BatchNorm2d(outside), nn.ReLU()]
    net = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return Work(Plain(net), classes(3, 32, 32, n=256))


def gpt() -> Work:
    ids = torch.randint(0, 512, (64, 65))
    return Work(Plain(GPT()), TensorDataset(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), batch_size=8)


def many() -> Work:
    return Work(Plain(Many()), classes(16), steps=sampling.EVERY)


WORK: dict[str, Callable[[], Work]] = {
    "mlp": mlp,
    "mlp-long": mlp_long,
    "deep": deep,
    "deep-long": deep_long,
    "cnn": cnn,
    "gpt": gpt,
    "many": many,
}
LONG = ("empty callback", "watchdog")
"""With what the long runs are compared."""


class Turns:
    """Processes that run one at a time, in a ring."""

    def __init__(self, mine: Any, following: Any) -> None:
        self._mine, self._following = mine, following

    def __enter__(self) -> None:
        self._mine.acquire()

    def __exit__(self, *_: object) -> None:
        self._following.release()


class Clock(L.Callback):
    """CPU seconds of each step, in turn with other processes."""

    def __init__(self, turns: Turns, turn: int) -> None:
        self.turns, self.turn = turns, turn
        self.seconds: list[float] = []
        self.since = 0.0

    def on_train_start(self, *_: Any) -> None:
        self.since = time.process_time()

    def on_train_batch_end(self, *_: Any) -> None:
        self.seconds.append(time.process_time() - self.since)
        if len(self.seconds) % self.turn == 0:
            self.turns.__exit__()
            self.turns.__enter__()
        self.since = time.process_time()


class Audit(L.Callback):
    """torch-audit on the network, by its own way of patching a loop that it does not run."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.auditor: Any = None

    def on_train_start(self, trainer: L.Trainer, module: Any) -> None:
        from torch_audit import autopatch

        optimizer = trainer.optimizers[0]
        self.auditor = autopatch(module.net, optimizer=optimizer, every_n_steps=self.every, reporters=[])

    def on_train_end(self, *_: Any) -> None:
        self.auditor.unpatch()


PLAIN = "plain"
WAYS: dict[str, Callable[[], list[L.Callback]]] = {
    PLAIN: list,
    "empty callback": lambda: [L.Callback()],
    "watchdog": lambda: [SanityWatchdog(fail_on=None)],
    "detect_anomaly": list,
    "torch-audit": lambda: [Audit(1)],
    "torch-audit/101": lambda: [Audit(101)],
}


def fit(work: str, how: str, turns: Turns, steps: int | None = None) -> tuple[list[float], float]:
    """CPU seconds of each step of the steady state, and of the whole fit where that is one turn."""
    L.seed_everything(0, verbose=False)
    made = WORK[work]()
    clock, added = Clock(turns, made.turn if steps is None else steps + 1), WAYS[how]()
    with tempfile.TemporaryDirectory() as folder, turns:
        trainer = L.Trainer(
            accelerator="cpu",
            max_steps=steps or made.first + made.steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            detect_anomaly=how == "detect_anomaly",
            callbacks=[*added, clock],
        )
        start = time.process_time()
        trainer.fit(made.module, DataLoader(made.data, made.batch_size))
        whole = time.process_time() - start
    for dog in (c for c in added if isinstance(c, SanityWatchdog)):
        assert not dog.summary.broken, dog.summary.broken
        assert len(dog.summary.judged) > 5
    return clock.seconds[made.first :], whole


def measure(work: str, how: str, turns: Turns, found: Any) -> None:
    """One process of the ring."""
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    fit(work, how, turns, SMOKE)
    steady = fit(work, how, turns)[0]
    smokes = 0 if work.endswith("-long") else SMOKES
    found.put((how, steady, [fit(work, how, turns, SMOKE)[1] for _ in range(smokes)]))


Seconds = dict[str, list[list[float]]]
"""By way of training, in each round: of each step, or of each smoke run."""


def race(work: str, ways: Sequence[str], steady: Seconds, smoke: Seconds) -> None:
    """One round."""
    context = multiprocessing.get_context("spawn")
    found, ring = context.Queue(), [context.Semaphore(0) for _ in ways]
    processes = [
        context.Process(target=measure, args=(work, how, Turns(mine, following), found), daemon=True)
        for how, mine, following in zip(ways, ring, [*ring[1:], ring[0]], strict=True)
    ]
    for process in processes:
        process.start()
    ring[0].release()
    left = set(ways)
    while left:
        try:
            how, steps, fits = found.get(timeout=1)
        except Empty:
            if any(process.exitcode for process in processes):  # the others would wait for its turn for ever
                raise SystemExit(f"{work}: a process has failed") from None
        else:
            left.remove(how)
            steady[how].append(steps)
            smoke[how].append(fits)


def compare(work: str, ways: Sequence[str], rounds: int) -> dict[str, Any]:
    """Ratios of each way to a plain run."""
    every = [PLAIN, *(how for how in ways if how in LONG or not work.endswith("-long"))]
    rounds *= ROUNDS.get(work, 1)
    steady: Seconds = {how: [] for how in every}
    smoke: Seconds = {how: [] for how in every}
    for turn in range(rounds):
        race(work, every[turn % len(every) :] + every[: turn % len(every)], steady, smoke)
    found: dict[str, Any] = {}
    for how in every[1:]:
        found[how] = {
            "steady": _ratio(steady[how], steady[PLAIN]),
            "plain_step_ms": 1e3 * sum(_typical(steady[PLAIN])) / WORK[work]().steps,
            "rounds": rounds,
        }
        if how == "watchdog":
            found[how]["looks"] = _looks(_typical(steady[how]), WORK[work]().first)
        if smoke[PLAIN][0]:
            own, plain = sum(_typical(smoke[how])), sum(_typical(smoke[PLAIN]))
            found[how]["smoke"] = _ratio(smoke[how], smoke[PLAIN])
            found[how]["smoke_extra_seconds"] = (own - plain) / SMOKES
    return found


def _looks(steps: list[float], first: int) -> float:
    """What steps that may be looked at, and those after them, take more than the others, over the time of all."""
    looked = [
        any(sampling.sampled(i - past, sampling.EVERY) for past in (0, 1)) for i in range(first, first + len(steps))
    ]
    usual = statistics.median(s for s, look in zip(steps, looked, strict=True) if not look)
    return sum(s - usual for s, look in zip(steps, looked, strict=True) if look) / (usual * len(steps))


def _typical(rounds: list[list[float]]) -> list[float]:
    """Seconds of each step or fit: the median over the rounds."""
    return [statistics.median(one) for one in zip(*rounds, strict=True)]


def _ratio(watched: list[list[float]], plain: list[list[float]]) -> dict[str, float]:
    each = [sum(a) / sum(b) for a, b in zip(watched, plain, strict=True)]
    return {"median": sum(_typical(watched)) / sum(_typical(plain)), "least": min(each), "most": max(each)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(WORK))
    ways = [how for how in WAYS if how != PLAIN and (find_spec("torch_audit") or not how.startswith("torch-audit"))]
    parser.add_argument("--against", default=",".join(ways))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "lightning": L.__version__,
        "rounds": args.rounds,
        "ratios": {},
    }
    for work in args.only.split(","):
        found["ratios"][work] = compare(work, args.against.split(","), args.rounds)
        for how, one in found["ratios"][work].items():
            ratio = "{median:.4f} [{least:.3f} {most:.3f}]".format_map(one["steady"])
            smoke = (
                f"smoke {one['smoke']['median']:.3f} ({one['smoke_extra_seconds']:+.3f} s)" if "smoke" in one else ""
            )
            looks = f"looks {one['looks']:+.4f}" if "looks" in one else ""
            print(f"{work:9} {how:15} steady {ratio}  {smoke} {looks}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
