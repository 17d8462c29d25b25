from dataclasses import dataclass
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Findings, Skip, check
from sanity_watchdog.checks.watchdog import nothing_judged, watchdog_failed
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.readings import Scalars, Unseen, Vital
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.settings import Settings
from sanity_watchdog.summary import Batch, RunInfo, Summary


@dataclass(frozen=True, kw_only=True)
class Seen(Evidence):
    zeros: tuple[str, ...] = ()
    severity: Severity = Severity.ERROR
    skip: str = ""
    broken: bool = False


@dataclass(frozen=True, kw_only=True)
class Other(Evidence):
    """Evidence of another check."""


@check("WD301", "zeroed-parameter", Severity.ERROR, Seen)
def zeroed(seen: Seen) -> Findings:
    """Zeroed."""
    if seen.broken:
        raise RuntimeError("boom")
    if seen.skip:
        yield Skip(seen.skip)
    elif seen.zeros:
        yield zeroed.alert(seen, "zero", subjects=seen.zeros, severity=seen.severity, hint="fix it")


CHECKS = (watchdog_failed, nothing_judged, zeroed)


class Memory:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.summaries: list[Summary] = []

    def open(self, info: RunInfo) -> None:
        self.info = info

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)

    def close(self, summary: Summary) -> None:
        self.summaries.append(summary)


def make(*sinks: Any, on_alert: Any = None, **settings: Any) -> DiagnosticsLogger:
    chosen = Settings.make(**{"fail_on": None, "environ": {}, **settings})
    logger = DiagnosticsLogger(chosen, sinks or (Memory(),), on_alert, CHECKS)
    logger.open(RunInfo())
    logger.stepping = True
    return logger


def test_a_quiet_run_passes_and_says_what_was_judged() -> None:
    sink = Memory()
    logger = make(sink)
    logger.take(Seen())
    summary = logger.close(9, 10, 10)
    assert summary.verdict == logger.verdict == "pass"
    assert summary.judged == ("WD301",)
    assert not summary.skipped
    assert sink.summaries == [summary]
    assert logger.close(9, 10, 10) is summary
    assert len(sink.summaries) == 1


def test_nothing_judged_is_incomplete() -> None:
    logger = make()
    summary = logger.close(0, 0, 0)
    assert summary.verdict == "incomplete"
    assert [a.code for a in summary.alerts] == ["WD002"]


def test_evidence_before_the_first_step_does_not_make_a_run_judged() -> None:
    logger = make()
    logger.stepping = False
    logger.take(Seen())
    assert logger.close(0, 0, 0).verdict == "incomplete"


@pytest.mark.parametrize(
    ("severity", "fail_on", "verdict"),
    [
        (Severity.INFO, None, "pass"),
        (Severity.WARNING, None, "warn"),
        (Severity.ERROR, None, "fail"),
        (Severity.WARNING, "warning", "fail"),
    ],
)
def test_verdict(severity: Severity, fail_on: str | None, verdict: str) -> None:
    logger = make(fail_on=fail_on)
    logger.take(Seen(zeros=("a",), severity=severity))
    assert logger.verdict == verdict
    assert logger.must_stop() is (fail_on is not None)


def test_seen_again_is_merged_and_told_at_powers_of_ten_and_when_it_grows() -> None:
    sink = Memory()
    logger = make(sink)
    for step in range(100):
        logger.take(Seen(step=step, zeros=("a",) if step < 50 else ("a", "b")))
        logger.flush(step)
    assert [(b.step, b.alerts[0].count) for b in sink.batches] == [(0, 1), (9, 10), (50, 51), (99, 100)]
    (alert,) = logger.alerts
    assert (alert.step, alert.last_step, alert.count, alert.subjects) == (0, 99, 100, ("a", "b"))


def test_a_condition_that_clears_says_so_once_and_rearms() -> None:
    sink = Memory()
    logger = make(sink)
    for step, zeros in enumerate([("a",), (), (), ("a",)]):
        logger.take(Seen(step=step, zeros=zeros))
        logger.flush(step)
    assert [(b.step, len(b.alerts), len(b.cleared)) for b in sink.batches] == [(0, 1, 0), (1, 0, 1), (3, 1, 0)]
    assert logger.alerts[0].count == 2
    logger.take(Seen(step=4))
    assert logger.verdict == "fail", "a cleared alert stays in the history"
    assert not logger.must_stop()


def test_a_cause_that_turns_out_to_explain_an_error_is_told_again_and_stops() -> None:
    @check("WD302", "stuck-at-zero", Severity.ERROR, Other, implied_by=("WD301",))
    def stuck(seen: Other) -> Findings:
        """Stuck."""
        yield stuck.alert(seen, "stuck", hint="fix it")

    sink = Memory()
    logger = DiagnosticsLogger(Settings.make(fail_on="error", environ={}), [sink], checks=(*CHECKS, stuck))
    logger.take(Seen(zeros=("a",), severity=Severity.WARNING))
    logger.flush(0)
    assert not logger.must_stop()
    logger.take(Other(step=1))
    logger.flush(1)
    assert logger.must_stop()
    assert [[(a.code, a.severity) for a in b.alerts] for b in sink.batches] == [
        [("WD301", Severity.WARNING)],
        [("WD301", Severity.ERROR)],
    ]


def test_another_stage_clears_nothing() -> None:
    logger = make(fail_on="error")
    logger.take(Seen(zeros=("a",)))
    logger.take(Seen(stage="validation"))
    assert logger.must_stop()


def test_a_skip_is_counted_with_its_reason_and_clears_nothing() -> None:
    logger = make(fail_on="error")
    logger.take(Seen(zeros=("a",)))
    logger.take(Seen(skip="no weights"))
    assert logger.must_stop()
    other = make()
    other.take(Seen(skip="no weights"))
    assert other.close(0, 1, 1).skipped == {"WD301": "no weights"}


def test_what_could_not_be_seen_says_why() -> None:
    logger = make()
    logger.take(Unseen(codes=("WD3",), reason="compiled step"))
    assert logger.close(0, 1, 1).skipped == {"WD301": "compiled step"}


def test_a_check_that_raises_is_reported_once_and_the_run_goes_on() -> None:
    logger = make()
    for step in range(3):
        logger.take(Seen(step=step, broken=True))
    summary = logger.close(3, 3, 3)
    (alert,) = [a for a in summary.alerts if a.code == "WD001"]
    assert summary.verdict == "incomplete"
    assert alert.count == 1
    assert "RuntimeError: boom" in alert.message
    assert "boom" in summary.broken["check WD301"]


def test_ignored_alerts_stay_visible() -> None:
    logger = make(ignore={"WD301:*.mask": "pruned", "WD301:never": ""})
    logger.take(Seen(zeros=("a.mask", "b")))
    logger.take(Seen(zeros=("a.mask",)))
    summary = logger.close(1, 1, 1)
    assert summary.alerts[0].subjects == ("b",)
    (ignored,) = summary.ignored
    assert (ignored.alert.subjects, ignored.alert.count, ignored.reason) == (("a.mask",), 2, "pruned")
    assert summary.unused_ignores == ("WD301:never",)


def test_an_ignored_error_does_not_fail() -> None:
    logger = make(ignore=["WD301:a"], fail_on="error")
    logger.take(Seen(zeros=("a",)))
    assert not logger.must_stop()
    assert logger.verdict == "pass"


class Full(Memory):
    def write(self, batch: Batch) -> None:
        raise OSError(28, "No space left on device")


def test_a_sink_that_cannot_write_becomes_one_console_line() -> None:
    lines: list[str] = []
    sink = Memory()
    logger = make(Full(), sink)
    logger.open(RunInfo(echo=lines.append))
    for step in range(3):
        logger.take(Seen(step=step, zeros=(str(step),)))
        logger.flush(step)
    logger.close(3, 3, 3)
    assert len(lines) == 1
    assert "Full cannot write (OSError: [Errno 28] No space left on device)" in lines[0]
    assert len(sink.batches) == 3
    assert logger.alerts[0].count == 3


def test_readings_reach_the_sinks() -> None:
    sink = Memory()
    logger = make(sink)
    logger.take(Scalars(values={"first_loss": 2.3}))
    logger.take(Vital(key="loss", text="first loss 2.3"))
    logger.flush(0)
    (batch,) = sink.batches
    assert batch.readings[0].values == {"first_loss": 2.3}  # type: ignore[attr-defined]
    assert batch.vitals == {"loss": "first loss 2.3"}


def test_on_alert_hears_each_new_alert_and_may_raise() -> None:
    heard: list[Alert] = []

    def listen(alert: Alert) -> None:
        heard.append(alert)
        raise ValueError("no network")

    logger = make(on_alert=listen)
    logger.take(Seen(zeros=("a",)))
    logger.take(Seen(zeros=("a",)))
    assert [a.code for a in heard] == ["WD301"]
    assert "on_alert" in logger.close(0, 1, 1).broken


def test_a_fault_of_ours_on_another_rank_makes_the_run_incomplete() -> None:
    logger = DiagnosticsLogger(Settings.make(fail_on=None), checks=CHECKS)
    logger.stepping = True
    logger.take(Seen())
    assert logger.verdict == "pass"
    logger.adopt(Alert("WD001", "watchdog-failed", Severity.INFO, "boom", subjects=("observer Ranks",), ranks=(3,)))
    assert logger.verdict == "incomplete"
    assert logger.close(1, 1, 1).broken == {"observer Ranks of rank 3": "boom"}


def test_nothing_is_told_after_the_summary() -> None:
    told: list[str] = []

    class Telling:
        def open(self, info: RunInfo) -> None:
            told.append("open")

        def write(self, batch: Batch) -> None:
            told.append("write")

        def close(self, summary: Summary) -> None:
            told.append("close")

    logger = DiagnosticsLogger(Settings.make(fail_on=None), [Telling()], checks=CHECKS)
    logger.open(RunInfo())
    logger.close(1, 1, 1)
    before = list(told)
    logger.own_fault("observer Late", RuntimeError("boom"))
    logger.flush(2)
    assert told == before
    assert told[-1] == "close"
