"""The callback in a real Trainer: what it may never do, and the one thing that it may."""

import os
import pickle
import signal
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor

import sanity_watchdog.callback
from sanity_watchdog import GradientWatch, LossWatch, ParameterWatch, SanityCheckFailed, SanityWatchdog, adapter
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.evidence.watchdog import Closing
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import MOMENTS, Observer
from sanity_watchdog.summary import Batch, RunInfo, Summary

from . import outcomes
from .outcomes import Outcome, same
from .runs import Classifier, Manual, blobs, loader, trainer

HOOKS = tuple(n for n in MOMENTS if n not in ("failed", "close", "rested"))
ALL = tuple(sorted({c.code[:3] for c in CHECKS} | {"WD"}))


def outcome(*dogs: L.Callback, module: type[L.LightningModule] = Classifier, **kwargs: Any) -> Outcome:
    return outcomes.outcome(module=module, callbacks=list(dogs), **{"max_steps": 6, **kwargs})


def observing(monkeypatch: pytest.MonkeyPatch, *observers: type[Observer]) -> None:
    monkeypatch.setattr(sanity_watchdog.callback, "OBSERVERS", observers)


class Recorder(Observer):
    """Writes down each moment."""

    codes = ALL
    log: list[tuple[Any, ...]]

    def __init__(self) -> None:
        type(self).log = []


def _record(name: str) -> Any:
    def hook(self: Recorder, *args: Any) -> Any:
        at = next(a for a in args if isinstance(a, Moment))
        self.log.append((name, at.batch, at.attempt, at.sampled, at.sync, at.stage))
        return ()

    return hook


for _name in (*HOOKS, "failed"):
    setattr(Recorder, _name, _record(_name))


def names(batch: int) -> list[str]:
    own = [entry for entry in Recorder.log if entry[5] == "train" and entry[1] == batch]
    return [entry[0] for entry in own if entry[0] in ("batch", "around_step", *STEP, "output", "batch_end")]


STEP = ["before_backward", "after_backward", "before_optimizer_step", "after_optimizer_step"]


@pytest.mark.parametrize(
    ("module", "order"),
    [
        (Classifier, ["batch", "around_step", "output", *STEP, "batch_end"]),
        (Manual, ["batch", "around_step", *STEP, "output", "batch_end"]),
    ],
)
def test_observers_see_the_step_in_the_promised_order(
    monkeypatch: pytest.MonkeyPatch, module: type[L.LightningModule], order: list[str]
) -> None:
    observing(monkeypatch, Recorder)
    outcome(SanityWatchdog(fail_on=None), module=module)
    assert names(0) == order
    assert {e[0] for e in Recorder.log} >= {"start", "end", "epoch_end", "validation_end", "metrics"}
    assert [e[4] for e in Recorder.log if e[0] == "batch"] == [True] + [False] * 5, "only the first step may be read"
    assert [e[3] for e in Recorder.log if e[0] == "batch"] == [True, True, True, True, False, True]


def test_accumulation_watches_every_micro_batch_of_a_sampled_step(monkeypatch: pytest.MonkeyPatch) -> None:
    observing(monkeypatch, Recorder)
    outcome(SanityWatchdog(fail_on=None), accumulate_grad_batches=3, max_epochs=10, max_steps=6)
    sampled = [e[3] for e in Recorder.log if e[0] == "batch"]
    assert sampled == [True] * 12 + [False] * 3 + [True] * 3
    assert sum(e[0] == "before_optimizer_step" for e in Recorder.log) == 6


def test_the_sanity_check_is_seen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    observing(monkeypatch, Recorder)
    outcome(SanityWatchdog(fail_on=None), num_sanity_val_steps=2)
    opens, *seen = Recorder.log[:5]
    stages = [(e[0], e[5]) for e in seen]
    order = ("validation_batch", "validation_start", "around_step", "output")
    assert opens[0] == "validation_opens"
    assert stages == [(name, "validation") for name in order]
    assert sum(e[0] == "validation_batch" for e in Recorder.log) == 1


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("module", [Classifier, Manual])
def test_an_observer_that_raises_changes_nothing_but_the_verdict(
    monkeypatch: pytest.MonkeyPatch, hook: str, module: type[L.LightningModule]
) -> None:
    def boom(self: Observer, *args: Any) -> None:
        raise RuntimeError("boom")

    observing(monkeypatch, type("Broken", (Observer,), {"codes": ALL, hook: boom}))
    dog = SanityWatchdog(fail_on="error")
    kwargs = {"module": module, "num_sanity_val_steps": 1}
    assert same(outcome(dog, **kwargs), outcome(**kwargs))
    assert "observer Broken" in dog.summary.broken
    assert dog.verdict == "incomplete"
    assert [a.code for a in dog.alerts].count("WD001") == 1


@pytest.mark.parametrize("part", ["enter", "exit", "reader", "evidence"])
def test_faults_on_the_way_to_the_logger(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    class Scope:
        def __enter__(self) -> None:
            if part == "enter":
                raise RuntimeError("boom")

        def __exit__(self, *_: object) -> None:
            if part == "exit":
                raise RuntimeError("boom")

    class Faulty(Observer):
        codes = ALL

        def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
            return [Scope()]

        def batch_end(self, at: Moment, output: Any) -> None:
            if part == "evidence":
                at.emit(None)  # type: ignore[arg-type]
            if part == "reader":
                at.ask({"x": torch.zeros(1)}, lambda values: [][1])

    observing(monkeypatch, Faulty)
    dog = SanityWatchdog(fail_on="error")
    assert same(outcome(dog), outcome())
    assert dog.summary.broken
    assert dog.verdict == "incomplete"


@pytest.mark.parametrize("method", ["open", "write", "close"])
def test_a_sink_that_raises(method: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    class Broken:
        def open(self, info: RunInfo) -> None: ...
        def write(self, batch: Batch) -> None: ...
        def close(self, summary: Summary) -> None: ...

    def boom(self: Broken, argument: Any) -> None:
        raise PermissionError("read-only")

    sink = type("Broken", (Broken,), {method: boom})()
    dog = SanityWatchdog(fail_on="error", sinks=[sink], record=tmp_path)
    assert same(outcome(dog), outcome())
    assert capsys.readouterr().err.count("Broken cannot write (PermissionError: read-only)") == 1


def planted(monkeypatch: pytest.MonkeyPatch, hook: str, batch: int) -> None:
    """An observer that hands over evidence for an alert in one batch."""

    def find(self: Observer, at: Moment, *_: Any) -> None:
        if at.batch == batch:
            at.emit(Closing(judged=0, batches=0, attempts=0, step=at.step))

    observing(monkeypatch, type("Finder", (Observer,), {"codes": ALL, hook: find}))


def fits_until_stopped(dog: SanityWatchdog, **kwargs: Any) -> tuple[SanityCheckFailed, list[Tensor], list[Tensor]]:
    L.seed_everything(3, verbose=False)
    net = Classifier()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(SanityCheckFailed) as caught:
        trainer(dog, **kwargs).fit(net, loader(*blobs(96)))
    return caught.value, before, list(net.parameters())


@pytest.mark.parametrize("hook", ["batch", "output", "before_backward", "after_backward", "before_optimizer_step"])
def test_the_policy_stops_before_the_first_update(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    planted(monkeypatch, hook, 0)
    dog = SanityWatchdog(fail_on="info")
    failure, before, after = fits_until_stopped(dog)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert [a.code for a in failure.alerts] == ["WD002"]
    assert pickle.loads(pickle.dumps(failure)).alerts == failure.alerts
    assert dog.verdict == "fail"
    assert dog.summary.stopped_by == 'fail_on="info"'


def test_the_policy_stops_later_at_the_step_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, "batch_end", 4)
    dog = SanityWatchdog(fail_on="info")
    fits_until_stopped(dog)
    assert dog.summary.batches == 5


def test_one_exception_lists_what_validation_and_the_first_step_showed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder(Observer):
        codes = ALL

        def validation_batch(self, at: Moment, batch: Any) -> None:
            at.emit(Closing(judged=0, batches=0, attempts=0, **at.tags()))

        def output(self, at: Moment, output: Any) -> None:
            at.emit(Closing(judged=0, batches=1, attempts=0, **at.tags()))

    observing(monkeypatch, Finder)
    dog = SanityWatchdog(fail_on="info")
    with pytest.raises(SanityCheckFailed) as caught:
        trainer(dog, num_sanity_val_steps=1).fit(Classifier(), loader(*blobs(96)), loader(*blobs(96)))
    assert {a.stage for a in caught.value.alerts} == {"train", "validation"}


class Crashing(Classifier):
    """Raises in the third training step."""

    error: BaseException = ValueError("user's own")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            raise self.error
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    "error", [ValueError("user's own"), SystemExit(3), RuntimeError("CUDA error: device-side assert")]
)
def test_the_users_exception_arrives_as_it_was(error: BaseException) -> None:
    Crashing.error = error
    dog = SanityWatchdog(fail_on="error")
    assert same(outcome(dog, module=Crashing, max_epochs=4), outcome(module=Crashing, max_epochs=4))
    assert not dog.summary.broken
    assert (dog.verdict, dog.summary.raised) == ("incomplete", type(error).__name__)


def test_a_read_back_that_fails_at_the_end_never_hides_the_users_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Observer):
        codes = ALL

        def failed(self, at: Moment, error: BaseException) -> None:
            raise RuntimeError("the device is gone")

    observing(monkeypatch, Late)
    Crashing.error = ValueError("user's own")
    dog = SanityWatchdog(fail_on="error")
    error = outcome(dog, module=Crashing, max_epochs=4).error
    assert error == "ValueError: user's own"
    assert "the device is gone" in dog.summary.broken["observer Late"]


def test_a_step_that_ends_its_epoch_by_stop_iteration_is_given_back() -> None:
    class Ending(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 1:
                raise StopIteration
            return super().training_step(batch, batch_idx)

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    kwargs: dict[str, Any] = {"module": Ending, "max_epochs": 40, "max_steps": -1}
    assert same(outcome(dog, **kwargs), outcome(**kwargs))
    assert not dog.summary.broken


def test_an_interrupt_ends_as_it_always_does() -> None:
    class Interrupted(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return super().training_step(batch, batch_idx)

    dog = SanityWatchdog(fail_on="error")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs in the background
    try:
        assert outcome(dog, module=Interrupted).error == outcome(module=Interrupted).error
    finally:
        signal.signal(signal.SIGINT, before)
    assert dog.summary.batches == 2


def test_nothing_is_left_behind() -> None:
    L.seed_everything(3, verbose=False)
    net, dog = Classifier(), SanityWatchdog(fail_on=None)
    run = trainer(dog)
    run.fit(net, loader(*blobs(96)))
    assert not run.optimizers[0]._optimizer_step_post_hooks  # type: ignore[attr-defined]
    assert "training_step" not in vars(run.strategy)
    assert "validation_step" not in vars(run.strategy)
    assert dog.state_dict() == {}


def test_several_callbacks_share_one_logger(tmp_path: Path) -> None:
    dogs = [
        LossWatch(fail_on=None, record=tmp_path),
        GradientWatch(fail_on=None, record=tmp_path),
        ParameterWatch(fail_on=None, record=tmp_path),
    ]
    assert same(outcome(*dogs), outcome())
    assert dogs[0].summary == dogs[1].summary == dogs[2].summary
    assert {code[:3] for code in dogs[0].summary.judged} == {"WD1", "WD2", "WD3"}
    assert len(list(tmp_path.iterdir())) == 1


def test_contradicting_callbacks_are_a_clear_error() -> None:
    with pytest.raises(ValueError, match="disagree on every_n_steps"):
        trainer(LossWatch(every_n_steps=7), GradientWatch(every_n_steps=5)).fit(Classifier(), loader(*blobs(32)))


def test_the_other_namespace() -> None:
    import pytorch_lightning as pl

    class Other(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(20, 10)

        training_step = Classifier.training_step
        loss = staticmethod(torch.nn.functional.cross_entropy)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    dog = SanityWatchdog(fail_on=None)
    pl.Trainer(
        accelerator="cpu",
        max_steps=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[dog],
    ).fit(Other(), loader(*blobs(96)))
    assert dog.summary.batches == 4
    assert not dog.summary.broken


def test_a_fit_of_no_batches_is_incomplete() -> None:
    dog = SanityWatchdog(fail_on=None)
    trainer(dog, max_steps=0).fit(Classifier(), loader(*blobs(32)))
    assert dog.verdict == "incomplete"
    assert [a.code for a in dog.alerts] == ["WD002"]


def test_fast_dev_run_writes_only_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome(SanityWatchdog(fail_on=None), fast_dev_run=True)
    assert not list(tmp_path.iterdir())
    outcome(SanityWatchdog(fail_on=None, record=tmp_path / "here" / "w.jsonl"), fast_dev_run=True)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["w.jsonl"]


def test_the_callback_pickles_before_and_after_a_fit() -> None:
    dog = SanityWatchdog(fail_on="error", ignore=["WD002"])
    assert pickle.loads(pickle.dumps(dog)).settings == dog.settings
    outcome(dog)
    assert pickle.loads(pickle.dumps(dog)).verdict == "incomplete"


def test_a_fault_while_the_trainer_is_made_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise RuntimeError("no frame")

    monkeypatch.setattr(adapter, "asked_precision", broken)
    assert same(outcome(SanityWatchdog(fail_on=None)), outcome())


@pytest.mark.parametrize("entry", ["WD102", "double-softmax", "WD1"])
def test_what_is_ignored_as_a_whole_stays_visible(entry: str) -> None:
    class Softmaxed(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return torch.nn.functional.cross_entropy(self.net(x).softmax(1), y)

    dog = SanityWatchdog(ignore=[entry, "WD501"], fail_on="error")
    trainer(dog).fit(Softmaxed(), loader(*blobs(96)))
    assert dog.verdict == "pass"
    assert dog.alerts == ()
    assert "WD102" in {i.alert.code for i in dog.summary.ignored}
    assert dog.summary.unused_ignores == ("WD501",)
