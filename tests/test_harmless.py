"""Faults of our own: a check, an observer or a sink that raises leaves the user's run exactly as it is without it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger

import sanity_watchdog.callback
from sanity_watchdog import SanityWatchdog
from sanity_watchdog.checks import CHECKS
from sanity_watchdog.checks.check import Check
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import Observer
from sanity_watchdog.observe.registry import OBSERVERS
from sanity_watchdog.settings import Settings
from sanity_watchdog.sinks import default_sinks

from .checks.test_parity import rows
from .outcomes import assert_same, outcome
from .runs import Classifier, assert_awake

HOOKS = tuple(n for n in vars(Observer) if not n.startswith("_") and n != "codes")
AT_REST = ("looks_between", "may_rest", "same_step", "rested")
"""Asked and told between samples of a settled run only."""
JUDGED = 10


# -- checks


def broken(seen: Any, **options: Any) -> Iterator[Any]:
    raise RuntimeError("boom")
    yield


def test_every_check_raising(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.code)
def test_one_check_raising_leaves_the_others_at_work(check: Check[Any]) -> None:
    seen = next(seen for c, seen in rows("FIRING") if c.code == check.code)
    checks = [replace(c, function=broken) if c is check else c for c in CHECKS]
    logger, whole = (DiagnosticsLogger(Settings.make(fail_on=None), checks=some) for some in (checks, CHECKS))
    for each in (logger, whole):
        each.take(seen)
        each.take(seen)
    assert check.code in {a.code for a in whole.alerts}
    others = {a.key for a in whole.alerts if a.code != check.code}
    if check.code == "WD001":  # what reports broken checks is broken itself
        assert not logger.alerts
        return
    assert {a.key for a in logger.alerts if a.code != "WD001"} >= others
    assert [a.subjects for a in logger.alerts if a.code == "WD001"][-1] == (f"check {check.code}",)
    assert logger.verdict in ("incomplete", "fail")


# -- observers


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


class Decays(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer: Any = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 3)]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_observer_raising_in(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    concerned = [o for o in OBSERVERS if hook in own(o)]
    observers = [raising(o, [hook], 0) if o in concerned else o for o in OBSERVERS]
    monkeypatch.setattr(sanity_watchdog.callback, "OBSERVERS", observers)
    settings: dict[str, Any] = {"num_sanity_val_steps": 1}
    dog = SanityWatchdog(fail_on="error", targets=("mps",), every_n_steps=101 if hook in AT_REST else 1)
    if hook in AT_REST:
        settings |= {"max_steps": 80, "max_epochs": -1}
    assert_same(outcome(dog, Decays, **settings), outcome(None, Decays, **settings))
    never = ("around_backward", "failed", "close")  # no recorder asks for it; no exception; too late to be told
    if concerned and hook not in never:
        assert any(f"observer {o.__name__}" in dog.summary.broken for o in concerned)


@pytest.mark.parametrize("observer", OBSERVERS, ids=lambda o: o.__name__)
def test_one_observer_raising_leaves_the_others_at_work(
    observer: type[Observer], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = [h for h in own(observer) if h not in ("start", "validation_batch")]
    broken_one = raising(observer, hooks, 1)
    monkeypatch.setattr(sanity_watchdog.callback, "OBSERVERS", [broken_one if o is observer else o for o in OBSERVERS])
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog), outcome())
    assert set(dog.summary.broken) <= {f"observer {observer.__name__}"}
    assert len(dog.summary.judged) >= JUDGED


# -- sinks


@pytest.mark.parametrize("method", ["open", "write", "close"])
@pytest.mark.parametrize("sink", [type(s) for s in default_sinks()], ids=lambda s: s.__name__)
def test_one_sink_raising_leaves_the_others_at_work(
    sink: type[Any], method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def boom(self: Any, argument: Any) -> None:
        raise OSError("boom")

    monkeypatch.setattr(sink, method, boom)
    logger = TensorBoardLogger(tmp_path, name="", version=0)
    dog = SanityWatchdog(fail_on="error")
    settings = {"default_root_dir": tmp_path, "max_epochs": 3}
    assert_same(outcome(dog, logger=logger, **settings), outcome(**settings))
    assert_awake(dog, JUDGED)
    told = capsys.readouterr().err
    assert told.count(f"{sink.__name__} cannot write (OSError: boom)") == 1
    working = {"ConsoleSink": "watchdog: pass" in told, "JsonLinesSink": any(tmp_path.rglob("watchdog.jsonl"))}
    working["TensorBoardSink"] = any(tmp_path.rglob("events.*"))
    assert all(works for name, works in working.items() if name != sink.__name__)
