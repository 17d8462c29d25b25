"""Whatever goes wrong in the watchdog or around it, the user's run ends exactly as it would without one."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

import sanity_watchdog.callback
from sanity_watchdog import SanityWatchdog
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import Observer
from sanity_watchdog.observe.registry import OBSERVERS

from .runs import Classifier, assert_awake, blobs, loader, mlp, trainer

HOOKS = tuple(n for n in vars(Observer) if not n.startswith("_") and n not in ("codes", "between"))
JUDGED = 10


def outcome(
    dog: SanityWatchdog | None = None,
    module: Callable[[], L.LightningModule] = Classifier,
    data: Callable[[], Any] = lambda: loader(*blobs(96)),
    **settings: Any,
) -> tuple[str, list[Tensor], Tensor]:
    """How a seeded fit ends: the exception, if any, the final weights, and the generator."""
    L.seed_everything(3, verbose=False)
    net, given, error = module(), data(), ""
    more = settings.pop("callbacks", [])
    try:
        trainer(*([dog] if dog else []), *more, **{"max_steps": 5, **settings}).fit(net, given, given)
    except BaseException as e:  # noqa: BLE001
        error = f"{type(e).__name__}: {e}"
    return error, [p.detach().clone() for p in net.parameters()], torch.get_rng_state()


def assert_same(one: tuple[str, list[Tensor], Tensor], other: tuple[str, list[Tensor], Tensor]) -> None:
    assert one[0] == other[0]
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    assert torch.equal(one[2], other[2])


# -- faults of our own


def test_every_check_raising(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seen: Any, **options: Any) -> Iterator[Any]:
        raise RuntimeError("boom")
        yield

    healthy = SanityWatchdog(fail_on=None)
    plain, watched = outcome(), outcome(healthy)
    assert_same(watched, plain)
    checks = [replace(c, function=broken) if not c.code.startswith("WD0") else c for c in CHECKS]
    monkeypatch.setattr(sanity_watchdog.callback, "DiagnosticsLogger", partial(DiagnosticsLogger, checks=checks))
    dog = SanityWatchdog(fail_on="error")
    assert_same(outcome(dog), plain)
    assert {f"check {code}" for code in healthy.summary.judged} <= set(dog.summary.broken)
    assert dog.verdict == "incomplete"
    assert {a.code for a in dog.alerts} == {"WD001", "WD002"}


def raising(observer: type[Observer], hooks: list[str], batch: int) -> type[Observer]:
    """The observer with ``hooks`` that raise from the given batch on."""

    def boom(name: str) -> Callable[..., Any]:
        def hook(self: Observer, *args: Any) -> Any:
            at = next((a for a in args if isinstance(a, Moment)), None)
            if at is None or at.stage != "train" or at.batch >= batch:
                raise RuntimeError("boom")
            return getattr(super(made, self), name)(*args)

        return hook

    made: type[Observer] = type(observer.__name__, (observer,), {name: boom(name) for name in hooks})
    return made


def own(observer: type[Observer]) -> list[str]:
    return [name for name in HOOKS if getattr(observer, name) is not getattr(Observer, name)]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_observer_raising_in(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    concerned = [o for o in OBSERVERS if hook in own(o)]
    observers = [raising(o, [hook], 0) if o in concerned else o for o in OBSERVERS]
    monkeypatch.setattr(sanity_watchdog.callback, "OBSERVERS", observers)
    dog = SanityWatchdog(fail_on="error", targets=("mps",), every_n_steps=1)
    assert_same(outcome(dog, num_sanity_val_steps=1), outcome(num_sanity_val_steps=1))
    never = ("around_backward", "failed", "close")  # no recorder asks for it; no exception; too late to be told
    if concerned and hook not in never:
        assert any(f"observer {o.__name__}" in dog.summary.broken for o in concerned)


@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda o: o.__name__)
def test_one_observer_raising_leaves_the_others_at_work(
    observer: type[Observer], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = raising(observer, [h for h in own(observer) if h not in ("start", "validation_batch")], 1)
    monkeypatch.setattr(sanity_watchdog.callback, "OBSERVERS", [broken if o is observer else o for o in OBSERVERS])
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog), outcome())
    assert set(dog.summary.broken) <= {f"observer {observer.__name__}"}
    assert len(dog.summary.judged) >= JUDGED


# -- disks


def assert_silenced(capsys: pytest.CaptureFixture[str], error: str) -> None:
    told = capsys.readouterr().err
    assert told.count("JsonLinesSink cannot write") == 1, told
    assert error in told


def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        with contextlib.suppress(OSError):
            (tmp_path / "full").write_bytes(bytes(1 << 20))
        dog = SanityWatchdog(fail_on="error", record=tmp_path / "watchdog.jsonl")
        assert_same(outcome(dog), outcome())
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert_awake(dog, JUDGED)
    assert_silenced(capsys, "No space left")


def test_a_file_where_the_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    dog = SanityWatchdog(fail_on="error", record=tmp_path / "taken" / "watchdog.jsonl")
    assert_same(outcome(dog), outcome())
    assert_awake(dog, JUDGED)
    assert_silenced(capsys, "taken")


class Deleting(L.Callback):
    """Somebody tidies up while the run goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 2:
            shutil.rmtree(self.folder, ignore_errors=True)


def test_a_log_directory_that_is_deleted_during_the_run(tmp_path: Path) -> None:
    def settings(name: str) -> dict[str, Any]:
        folder = tmp_path / name
        return {
            "logger": TensorBoardLogger(folder, name="", version=0),
            "default_root_dir": folder,
            "callbacks": [Deleting(folder)],
            "max_epochs": 3,
            "max_steps": 9,
        }

    class Logging(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    dog = SanityWatchdog(fail_on="error")
    plain, watched = (outcome(d, module=Logging, **settings(n)) for d, n in ((None, "plain"), (dog, "watched")))
    name = {error.partition(":")[0] for error in (plain[0], watched[0])}  # of the file, not of the exception, differs
    assert len(name) == 1
    assert_same(("", *watched[1:]), ("", *plain[1:]))
    assert_awake(dog, JUDGED)


# -- signals


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


# -- odd users


@pytest.mark.parametrize("inner_watched", [False, True])
@pytest.mark.parametrize("batch", [0, 4])
def test_a_fit_within_a_step(inner_watched: bool, batch: int) -> None:
    inner: list[SanityWatchdog] = []

    class Nesting(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == self.when:
                dogs = [SanityWatchdog(fail_on="error")] if self.nested_watched else []
                inner.extend(dogs)
                with torch.enable_grad():
                    trainer(*dogs, max_steps=3).fit(Classifier(), loader(*blobs(64)))
            return super().training_step(batch, batch_idx)

    Nesting.when, Nesting.nested_watched = batch, inner_watched  # type: ignore[attr-defined]
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    watched = outcome(dog, module=Nesting, max_epochs=3)
    Nesting.nested_watched = False  # type: ignore[attr-defined]
    assert_same(watched, outcome(module=Nesting, max_epochs=3))
    assert_awake(dog, JUDGED)
    for one in inner:
        assert_awake(one, JUDGED)


class Touchy(nn.Linear):
    """Looking at it hurts."""

    @property
    def running_mean(self) -> Tensor:
        raise RuntimeError("do not look")

    @property
    def p(self) -> float:
        raise ValueError("do not look")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("weight", "bias", "in_features", "out_features", "training"):
            return super().__getattr__(name)
        raise KeyError(name)


class TouchyModule(Classifier):
    """So does looking at the LightningModule."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(Touchy(20, 32), nn.ReLU(), Touchy(32, 10)))

    @property
    def secret(self) -> Any:
        raise RuntimeError("do not look")

    @property
    def scaler(self) -> Any:
        raise ZeroDivisionError


def test_a_model_whose_attributes_raise_when_looked_at() -> None:
    dog = SanityWatchdog(fail_on="error", every_n_steps=1, targets=("mps", "tpu"))
    assert_same(outcome(dog, module=TouchyModule), outcome(module=TouchyModule))
    assert_awake(dog, JUDGED)


NAMES = ("a|b", "line\nbreak", "long" * 2_500, "\ud800", "", " ", "|", "<b>&", "日本語", "x]['y")


class OddNames(Classifier):
    """Parameters under names that no file format likes, with a gradient and outside the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.Module()
        for name in NAMES:
            self.odd._parameters[name] = nn.Parameter(torch.ones(3, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        penalty = sum(p.square().mean() for p in self.odd._parameters.values() if p is not None)
        return super().training_step(batch, batch_idx) + 1e-3 * penalty

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), 1e-3)


def test_names_that_no_file_format_likes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settings(name: str) -> dict[str, Any]:
        return {"logger": TensorBoardLogger(tmp_path / name, name="", version=0), "default_root_dir": tmp_path / name}

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    assert_same(outcome(dog, module=OddNames, **settings("watched")), outcome(module=OddNames, **settings("plain")))
    assert_awake(dog, JUDGED)
    found = next(a for a in dog.alerts if a.code == "WD311")
    assert len(found.subjects) == len(NAMES)
    assert "cannot write" not in capsys.readouterr().err
    record = next((tmp_path / "watched").rglob("watchdog.jsonl"))
    assert "WD311" in codes_in(map(json.loads, record.read_text().splitlines()))
    done = subprocess.run(
        [sys.executable, "-m", "sanity_watchdog", "report", record, "--format", "junit"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]


class Shy:
    """A batch that can only be used as its owner does."""

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.x = torch.stack([x for x, _ in samples])
        self.y = torch.stack([y for _, y in samples])

    def __iter__(self) -> Any:
        raise RuntimeError("do not iterate")

    __len__ = __getitem__ = __contains__ = __bool__ = __eq__ = __iter__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "to":
            raise AttributeError(name)
        raise ValueError(name)


class Slotted:
    """A batch without a ``__dict__``."""

    __slots__ = ("x", "y")

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.x = torch.stack([x for x, _ in samples])
        self.y = torch.stack([y for _, y in samples])


class Owner(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.net(batch.x), batch.y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.loss(self.net(batch.x), batch.y)


@pytest.mark.parametrize("kind", [Shy, Slotted])
def test_a_batch_that_raises_when_looked_at(kind: type) -> None:
    def data() -> DataLoader[Any]:
        return loader(*blobs(96), collate_fn=kind)

    dog = SanityWatchdog(fail_on="error", every_n_steps=1, save_batches=True)
    assert_same(outcome(dog, module=Owner, data=data), outcome(module=Owner, data=data))
    assert_awake(dog, JUDGED)


def test_an_output_that_raises_when_looked_at() -> None:
    class Odd(dict[str, Any]):
        def __iter__(self) -> Any:
            raise RuntimeError("do not iterate")

        def values(self) -> Any:
            raise RuntimeError("do not look")

    class Returning(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return Odd(loss=super().training_step(batch, batch_idx))

    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog, module=Returning), outcome(module=Returning))
    assert_awake(dog, JUDGED)


def test_a_planted_fault_alerts_in_the_same_setting() -> None:
    dog = SanityWatchdog(fail_on=None)
    outcome(dog, module=lambda: Broken(mlp()))
    assert "WD102" in {a.code for a in dog.alerts}
