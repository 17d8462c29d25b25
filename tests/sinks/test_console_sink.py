"""What a person reads on stderr."""

import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from sanity_watchdog.alerts import Alert, Severity, render
from sanity_watchdog.sinks import ConsoleSink
from sanity_watchdog.summary import Batch, Ignored, RunInfo, Summary

ERROR = Alert(
    "WD301", "zeroed-parameter", Severity.ERROR, "all 2048 values are zero", step=8, subjects=("net.0.weight",)
)
NOTE = Alert("WD101", "initial-loss-off", Severity.INFO, "first loss 2.0 is below 2.303")


def said(*news: Batch, summary: Summary | None = None, **info: str | int) -> list[str]:
    lines: list[str] = []
    sink = ConsoleSink()
    sink.open(RunInfo(echo=lines.append, **info))  # type: ignore[arg-type]
    for batch in news:
        sink.write(batch)
    if summary is not None:
        sink.close(summary)
    return lines


def test_an_alert_is_rendered_once() -> None:
    again = replace(ERROR, count=10, last_step=30)
    assert said(Batch(8, (ERROR,)), Batch(30, (again,))) == [
        render(ERROR),
        "watchdog: WD301 zeroed-parameter: seen 10×, last at step 30",
    ]


def test_an_alert_whose_subjects_grow_does_not_fill_the_screen() -> None:
    news = [Batch(i, (replace(ERROR, count=i, subjects=("net.0.weight",) * i),)) for i in range(1, 100)]
    assert [line[:60] for line in said(*news)[1:]] == ["watchdog: WD301 zeroed-parameter: seen 10×, last at step 8"]


def test_an_alert_that_grew_worse_is_rendered_again() -> None:
    milder = replace(ERROR, severity=Severity.WARNING)
    assert said(Batch(8, (milder,)), Batch(9, (ERROR,))) == [render(milder), render(ERROR)]


def test_a_note_takes_one_line() -> None:
    assert said(Batch(0, (NOTE,))) == ["watchdog: note WD101 initial-loss-off: first loss 2.0 is below 2.303"]


def test_what_was_told_is_taken_back_once() -> None:
    gone = "watchdog: WD301 zeroed-parameter: no longer so at step 40"
    again = replace(ERROR, count=2, last_step=50)
    assert said(Batch(40, cleared=(ERROR,))) == []
    assert said(Batch(8, (ERROR,)), Batch(40, cleared=(ERROR,))) == [render(ERROR), gone]
    news = [Batch(8, (ERROR,)), Batch(40, cleared=(ERROR,)), Batch(50, (again,)), Batch(60, cleared=(again,))]
    assert said(*news) == [render(ERROR), gone]


def test_a_quiet_run_ends_in_two_lines_that_give_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = Summary(
        "pass",
        judged=tuple(f"WD1{i:02}" for i in range(47)),
        skipped={"WD201": "no fp16", "WD202": "no fp16", "WD601": "one process"},
        vitals={
            "parameters": "26,122 parameters",
            "loss": "first loss 2.312 (ln 10 = 2.303)",
            "runtime": "32-true on cpu",
        },
    )
    assert said(summary=summary, directory="logs", record=str(tmp_path / "logs" / "watchdog.jsonl")) == [
        "watchdog: pass. first loss 2.312 (ln 10 = 2.303) · 32-true on cpu · 26,122 parameters",
        "watchdog: 50 checks: 47 judged, 3 skipped (WD601: one process; WD201, WD202: no fp16), 0 ignored"
        " · alerts in TensorBoard's Watchdog tab and logs/watchdog.jsonl",
    ]


def test_from_the_second_fit_of_a_process_on_the_verdict_says_which_it_is() -> None:
    summary = Summary("pass", vitals={"loss": "first loss 2.312"})
    assert said(summary=summary, fit=1)[0] == "watchdog: pass. first loss 2.312"
    assert said(summary=summary, fit=2)[0] == "watchdog: pass. fit 2 · first loss 2.312"


def test_a_long_list_of_skipped_checks_is_grouped_and_cut() -> None:
    skipped = {f"WD2{i:02}": "no fp16" for i in range(9)} | {f"WD5{i:02}": f"reason {i}" for i in range(9)}
    (_, line) = said(summary=Summary("pass", skipped=skipped))
    assert "18 skipped (WD500: reason 0; WD501: reason 1; WD502: reason 2; …)" in line
    (_, line) = said(summary=Summary("pass", skipped={c: r for c, r in skipped.items() if c < "WD502"}))
    assert "11 skipped (WD500: reason 0; WD501: reason 1; WD200, WD201, WD202 and 6 more: no fp16)" in line


def test_a_failed_run_says_what_failed_and_who_stopped_it() -> None:
    ignored = (Ignored(ERROR, "WD301:*.mask", "pruned on purpose"), Ignored(NOTE, "WD101"))
    summary = Summary(
        "fail",
        (ERROR, replace(ERROR, where="a"), NOTE),
        ignored=ignored,
        broken={"check WD102": "Traceback"},
        unused_ignores=("WD5",),
        stopped_by='fail_on="error"',
    )
    assert said(summary=summary) == [
        'watchdog: fail. 2 errors, 1 note · broke: check WD102 · stopped by fail_on="error"',
        "watchdog: 0 checks: 0 judged, 0 skipped, 2 ignored (WD301:*.mask: pruned on purpose, WD101)"
        " · silenced nothing: WD5",
    ]


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)], ids=str
)
def test_colours_only_on_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_color: str, coloured: bool
) -> None:
    stream = StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    lines = said(Batch(8, (ERROR,)), summary=Summary("fail", (ERROR,)))
    assert ["\033[" in line for line in lines] == [coloured, coloured, False]


def test_hostile_text_cannot_steer_the_terminal() -> None:
    hostile = replace(ERROR, subjects=("\033[2J\nx",), message="\033]0;gone\a", hint="\r", evidence=(("a\nb", "\033"),))
    summary = Summary("fail", skipped={"WD101": "\033[2J"}, vitals={"loss": "\n"}, unused_ignores=("\033",))
    for line in said(Batch(0, (hostile, replace(hostile, where="b", severity=Severity.INFO))), summary=summary):
        assert all(part.isprintable() for part in line.split("\n"))


def test_the_same_in_validation_is_one_line() -> None:
    elsewhere = replace(ERROR, where="train.py:9", stage="validation")
    lines = said(Batch(8, (replace(ERROR, where="train.py:5"), elsewhere)), summary=Summary("fail", (ERROR, elsewhere)))
    assert len(lines) == 4
    assert lines[1] == f"watchdog: {ERROR.code} {ERROR.name}: the same in validation, step {ERROR.step} at train.py:9"
