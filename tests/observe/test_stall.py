"""Stalls, with limits of a fraction of a second."""

import threading
import time
from typing import Any

import pytest

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.stall import StallObserver
from tests.runs import Classifier, blobs, codes, loader, trainer, watched


class Hangs(Classifier):
    """Waits in one step until somebody has complained about it."""

    complained = staticmethod(lambda: False)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 4:
            wait_for(self.complained)
        return super().training_step(batch, batch_idx)


def wait_for(condition: Any) -> None:
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "sanity-watchdog-stall"]


def test_a_stall_is_printed_while_it_lasts_and_recorded_afterwards(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    module, printed = Hangs(), []
    monkeypatch.setattr(StallObserver, "tick", 0.02)

    def complained() -> bool:
        monkeypatch.setattr(StallObserver, "least", 0.0)
        monkeypatch.setattr("sanity_watchdog.observe.stall.TIMES", 0.0)
        printed.append(capfd.readouterr().err)
        return any("WD510" in text for text in printed)

    module.complained = complained  # type: ignore[method-assign]
    dog = watched(module)
    assert "main thread: " in "".join(printed)
    assert "wait_for" in "".join(printed)
    (alert,) = (a for a in dog.alerts if a.code == "WD510")
    assert "test_stall.py" in alert.subjects[0]
    assert "WD510" in codes(dog)


def test_a_quick_run_is_quiet_and_judged() -> None:
    dog = watched(Classifier())
    assert "WD510" not in codes(dog)
    assert "WD510" in dog.summary.judged


def test_the_thread_ends_with_the_fit() -> None:
    class Looks(Classifier):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            seen.append(len(threads()))

    seen: list[int] = []
    watched(Looks())
    assert set(seen) == {1}
    wait_for(lambda: not threads())
    assert not threads()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_thread_ends_with_a_fit_that_fails(error: type[BaseException]) -> None:
    class Fails(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise error("no")

    with pytest.raises((RuntimeError, SystemExit, KeyboardInterrupt)):
        watched(Fails())
    wait_for(lambda: not threads())
    assert not threads()


def test_the_thread_ends_with_a_fit_that_the_policy_stops() -> None:
    dog = SanityWatchdog(fail_on="warning")
    with pytest.raises(Exception, match="WD"):
        trainer(dog).fit(Classifier(lr=0.0), loader(*blobs()))
    wait_for(lambda: not threads())
    assert not threads()


def test_before_the_first_batch_it_waits_longer() -> None:
    observer = StallObserver()
    assert observer.limit() == observer.first
    observer._seconds.extend([100.0, 1.0, 100.0])
    assert observer.limit() == 2000.0
    observer._seconds.extend([1.0] * 9)
    assert observer.limit() == observer.least
