"""However a run ends, it ends as it does without us, and what was found is on disk."""

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import LossWatch, SanityWatchdog
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.observe.aside import function_modes
from sanity_watchdog.observe.intercept import Interception
from sanity_watchdog.observe.loop import LoopObserver
from sanity_watchdog.observe.packet import Packet
from sanity_watchdog.reports.load import load
from sanity_watchdog.sinks.jsonl import JsonLinesSink
from sanity_watchdog.watch import Watch

from .outcomes import assert_same, outcome
from .runs import Classifier, assert_awake, blobs, loader, trainer, watched

JUDGED = 10


def codes_in(records: Iterable[dict[str, Any]]) -> set[str]:
    return {record["alert"]["code"] for record in records if record["type"] == "alert"}


class Broken(Classifier):
    """Softmax before cross entropy: alerts in the first step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return F.cross_entropy(self.net(x).softmax(-1), y)


class Killing(L.Callback):
    """Kills the process at the first moment after an alert."""

    def __init__(self, dog: SanityWatchdog) -> None:
        self.dog = dog

    def on_before_backward(self, *_: Any) -> None:
        if self.dog.alerts:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_of_ten_alerts_are_on_disk_when_the_process_is_killed_right_after(tmp_path: Path) -> None:
    codes = []
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        child = os.fork()
        if not child:
            try:
                dog = SanityWatchdog(fail_on=None, record=folder)
                data = loader(*blobs(64))
                trainer(dog, Killing(dog)).fit(Broken(), data)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        files = [folder] if folder.is_file() else list(folder.rglob("*.jsonl"))
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        codes.append(codes_in(lines))
    assert all("WD102" in found for found in codes), codes


TERMINATED = """
import os, signal, sys, warnings
warnings.filterwarnings("ignore")
import torch
from sanity_watchdog import SanityWatchdog
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.observe.aside import function_modes
from sanity_watchdog.observe.intercept import Interception
from sanity_watchdog.observe.loop import LoopObserver
from sanity_watchdog.observe.packet import Packet
from sanity_watchdog.sinks.jsonl import JsonLinesSink
from sanity_watchdog.watch import Watch
from tests.runs import Classifier, blobs, loader, trainer
class Terminated(Classifier):
    def training_step(self, batch, batch_idx):
        if self.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().training_step(batch, batch_idx)
torch.manual_seed(3)
dogs = [SanityWatchdog(fail_on="error")] if sys.argv[1] == "watched" else []
net, error = Terminated(), ""
try:
    trainer(*dogs, max_steps=6).fit(net, loader(*blobs(96)))
except BaseException as e:
    error = type(e).__name__
print("FOUND", error, float(sum(p.double().sum() for p in net.parameters())), [len(d.summary.broken) for d in dogs][:1])
if error:
    sys.exit(3)
"""


def test_being_terminated() -> None:
    root = Path(__file__).parents[1]
    paths = os.pathsep.join([str(root), str(root / "watchdog"), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    ends = {}
    for how in ("watched", "plain"):
        command = [sys.executable, "-c", TERMINATED, how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=root, env=environ, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
        ends[how] = done.returncode, [line.rpartition(" [")[0] for line in found]
        if how == "watched":
            assert not found or found[0].endswith("[0]"), done.stderr[-2000:]
    assert ends["watched"] == ends["plain"]


# -- exceptions of the user's


class Odd(Exception):  # noqa: N818
    """An exception that raises when it is looked at."""

    def __str__(self) -> str:
        raise RuntimeError("do not look")

    __repr__ = __str__


ERRORS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: ValueError("user's own"),
    "interrupt": KeyboardInterrupt,
    "exit": lambda: SystemExit(3),
    "odd": Odd,
}
METHODS = (
    "setup",
    "configure_optimizers",
    "on_fit_start",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "transfer_batch_to_device",
    "training_step",
    "forward",
    "on_before_backward",
    "backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "optimizer_step",
    "on_before_zero_grad",
    "on_train_batch_end",
    "on_validation_start",
    "validation_step",
    "on_validation_epoch_end",
    "on_validation_end",
    "on_train_epoch_end",
    "on_train_end",
    "on_fit_end",
    "teardown",
)


class Forward(Classifier):
    def forward(self, x: Any) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.loss(self(batch[0]), batch[1])


def crashing(method: str, error: str, after: int) -> type[Forward]:
    """A module whose method raises after so many calls."""
    calls = 0

    def crash(self: Forward, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise ERRORS[error]()
        return getattr(Forward, method)(self, *args, **kwargs)

    return type("Crashing", (Forward,), {method: crash})


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("method", METHODS)
def test_an_exception_of_the_users(method: str, after: int) -> None:
    settings = {"max_epochs": 5, "max_steps": -1, "num_sanity_val_steps": 1}
    plain = outcome(module=crashing(method, "error", after), **settings)
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog, module=crashing(method, "error", after), **settings), plain)
    assert plain.error or after  # what is called once raises at once or never
    assert not dog.summary.broken
    assert_awake(dog, JUDGED if dog.summary.batches else 0)


@pytest.mark.parametrize("error", [e for e in ERRORS if e != "error"])
@pytest.mark.parametrize("method", ["on_train_start", "forward", "backward", "validation_step", "on_train_end"])
def test_an_odd_exception_of_the_users(method: str, error: str) -> None:
    settings = {"max_epochs": 2, "max_steps": -1}
    plain = outcome(module=crashing(method, error, 0), **settings)
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog, module=crashing(method, error, 0), **settings), plain)
    assert plain.error
    assert not dog.summary.broken


@pytest.mark.parametrize("items", [0, 40, 100])
def test_data_that_raise(items: int) -> None:
    class Ending(TensorDataset):
        served = 0

        def __getitem__(self, index: Any) -> Any:
            self.served += 1
            if self.served > items:
                raise OSError("the disk with the images is gone")
            return super().__getitem__(index)

    def data() -> Any:
        return DataLoader(Ending(*blobs(96)), 16)

    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    plain = outcome(data=data, max_epochs=3, max_steps=-1)
    assert_same(outcome(dog, data=data, max_epochs=3, max_steps=-1), plain)
    assert "the disk with the images" in plain.error
    assert not dog.summary.broken


def test_warnings_that_are_errors() -> None:
    dog = SanityWatchdog(fail_on="error", every_n_steps=1, targets=("mps", "tpu"))
    plain = outcome()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=r"(lightning|torch|tensorboard)\.")
        assert_same(outcome(dog), plain)
    assert_awake(dog, JUDGED)


# -- a run that ends before its first step is finished


@pytest.mark.parametrize("method", ["on_train_start", "on_train_batch_start", "forward", "backward", "optimizer_step"])
def test_a_crash_in_the_first_step_that_nothing_explains_is_no_pass(method: str) -> None:
    dog = SanityWatchdog(fail_on=None)
    outcome(dog, module=crashing(method, "error", 0))
    assert dog.verdict == dog.summary.verdict == "incomplete"
    assert [a.code for a in dog.alerts] == ["WD002"]
    assert dog.alerts[0].message == "the run raised ValueError before its first training step was finished"


def test_a_crash_in_the_first_step_that_a_check_explains_is_a_fail() -> None:
    def data() -> Any:
        x, y = blobs(96)
        return loader(x, y + 5)

    dog = SanityWatchdog(fail_on=None)
    assert "out of bounds" in outcome(dog, data=data).error
    assert dog.verdict == "fail"
    assert [a.code for a in dog.alerts] == ["WD105"]


@pytest.mark.parametrize(
    ("kind", "verdict", "raised"), [("error", "incomplete", "ValueError"), ("interrupt", "pass", "")]
)
def test_a_run_that_raises_later_has_not_passed(
    capsys: pytest.CaptureFixture[str], kind: str, verdict: str, raised: str
) -> None:
    dog = SanityWatchdog(fail_on=None)
    assert outcome(dog, module=crashing("forward", kind, 4), max_epochs=3).error
    assert (dog.verdict, dog.summary.raised) == (verdict, raised)
    assert ("the run raised ValueError at step" in capsys.readouterr().err) == bool(raised)


def test_a_run_that_raises_keeps_the_verdict_of_its_alerts() -> None:
    def data() -> Any:
        x, y = blobs(96)
        return loader(x + 500, y)

    dog = SanityWatchdog(fail_on=None)
    assert outcome(dog, data=data, module=crashing("forward", "error", 4), max_epochs=3).error
    assert dog.verdict in ("warn", "fail")
    assert dog.summary.raised == "ValueError"


class Raising(L.Callback):
    def on_exception(self, *_: Any) -> None:
        raise LookupError("in on_exception")


@pytest.mark.parametrize("kind", ["error", "interrupt"])
def test_a_run_whose_end_another_callback_hides_from_us_has_not_passed(tmp_path: Path, kind: str) -> None:
    dogs = [SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl"), LossWatch(fail_on=None)]
    with pytest.raises(LookupError):
        trainer(Raising(), *dogs, max_epochs=3).fit(crashing("forward", kind, 4)(), loader(*blobs(96)))
    assert [dog.verdict for dog in dogs] == ["incomplete"] * 2
    assert {run.verdict for run in load([tmp_path]).runs} <= {"incomplete"}
    trainer(*dogs).fit(Classifier(), loader(*blobs(96)))
    assert [dog.verdict for dog in dogs] == ["pass"] * 2


class TimeIsUpError(Exception):
    """Of a time limit of the user's."""


@pytest.fixture
def time_limit() -> Iterator[Callable[[], None]]:
    """Ends the run from wherever it is, as an alarm does."""

    def up(number: int, frame: Any) -> None:
        raise TimeIsUpError

    before = signal.signal(signal.SIGUSR2, up)
    yield lambda: signal.raise_signal(signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (LoopObserver, "before_backward"),
        (Watch, "batch"),
        (Interception, "record"),
        (DiagnosticsLogger, "take"),
        (JsonLinesSink, "write"),
        (Packet, "read"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_time_limit_that_is_up_while_the_watchdog_looks(
    owner: Any, name: str, time_limit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(owner, name), [0]

    def late(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            time_limit()
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, late)
    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    with pytest.raises(TimeIsUpError):
        watched(Broken(), watchdog=dog, max_steps=12)
    assert calls[0] >= 2
    assert not function_modes()
    assert not dog.summary.broken
    assert dog.summary.raised == "TimeIsUpError"
