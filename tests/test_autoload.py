"""``SANITY_WATCHDOG=1`` attaches the watchdog to every Trainer, never twice."""

import subprocess
import sys

import pytest

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from sanity_watchdog.autoload import callbacks

from .runs import Classifier, blobs, loader, trainer


@pytest.mark.parametrize("value", ["", "0", "false", "False", " no ", "off"])
def test_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", value)
    assert callbacks() == []


def test_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", "1")
    (watchdog,) = callbacks()
    assert isinstance(watchdog, SanityWatchdog)


def test_a_bad_environment_never_breaks_a_trainer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", "1")
    monkeypatch.setattr(SanityWatchdog, "__init__", lambda *_, **__: 1 / 0)
    assert callbacks() == []
    assert "watchdog: off, nothing is watched: division by zero" in capsys.readouterr().err


def test_a_mistyped_severity_is_named_and_errors_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", "1")
    monkeypatch.setenv("SANITY_WATCHDOG_FAIL_ON", "eror")
    (watchdog,) = callbacks()
    assert isinstance(watchdog, SanityWatchdog)
    assert watchdog.by_environment
    assert watchdog.settings.policy.threshold is Severity.ERROR
    said = capsys.readouterr().err
    assert "SANITY_WATCHDOG_FAIL_ON: unknown severity 'eror'; valid are info, warning, error" in said
    assert "errors stop this run" in said


def test_the_module_imports_nothing() -> None:
    code = "import sys; before = set(sys.modules); import sanity_watchdog.autoload; print(set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torch" not in loaded
    assert "lightning" not in loaded


def test_one_given_by_hand_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", "1")
    (attached,) = callbacks()
    by_hand = SanityWatchdog(fail_on=None, every_n_steps=7)
    trainer(attached, by_hand).fit(Classifier(), loader(*blobs(64)))
    assert by_hand.summary.batches == 8
    assert not attached.summary.judged


def test_two_attached_ones_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANITY_WATCHDOG", "1")
    one, two = *callbacks(), *callbacks()
    trainer(one, two).fit(Classifier(), loader(*blobs(64)))
    assert [d.summary.batches for d in (one, two)] == [8, 0]
