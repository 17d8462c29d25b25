"""Records to runs, without TensorBoard."""

import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog import records
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.summary import Ignored, RunInfo, Summary
from sanity_watchdog.tensorboard_tab.runs import SUBJECTS, TEXT, Fit, detail, row

from .logs import HOT, NOTE, ZEROED


def fit(*found: Any, time: float = 1.0) -> Fit:
    return Fit.of([(time, records.encode([r])) for r in found])


def alerts(*found: Alert) -> list[records.Record]:
    return [records.alert_record(a) for a in found]


def test_a_finished_fit_is_what_its_summary_says() -> None:
    ended = Summary("warn", (ZEROED,), judged=("WD301",), skipped={"WD201": "no float16"}, step=9, batches=10)
    found = detail("run", [fit(records.run_record(RunInfo()), *alerts(HOT, ZEROED), records.summary_record(ended))])
    assert (found["verdict"], found["over"], found["step"], found["batches"]) == ("warn", True, 890, 10)
    assert [a["code"] for a in found["alerts"]] == ["WD301"]
    assert found["counts"] == {"error": 0, "warning": 1, "info": 0}
    assert found["skipped"] == {"WD201": "no float16"}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ((), "running"),
        ((NOTE,), "running"),
        ((NOTE, ZEROED), "warn"),
        ((NOTE, HOT, ZEROED), "fail"),
    ],
    ids=["nothing", "a note", "a warning", "an error"],
)
def test_the_verdict_of_a_fit_that_goes_on(found: tuple[Alert, ...], verdict: str) -> None:
    seen = row("run", [fit(*alerts(*found))])
    assert (seen["verdict"], seen["over"]) == (verdict, False)


@pytest.mark.parametrize(
    ("told", "verdict"), [("pass", "running"), ("incomplete", "running"), ("warn", "warn"), ("fail", "fail")]
)
def test_the_verdict_that_was_told(told: str, verdict: str) -> None:
    seen = row("run", [fit(records.state_record(7, told, {"runtime": "32-true on cpu"}))])
    assert (seen["verdict"], seen["step"], seen["vitals"]) == (verdict, 7, {"runtime": "32-true on cpu"})


def test_the_last_record_of_an_alert_holds() -> None:
    seen = detail("run", [fit(*alerts(ZEROED, replace(ZEROED, count=100, last_step=2000)))])
    (alert,) = seen["alerts"]
    assert (alert["count"], alert["step"], alert["last_step"], seen["step"]) == (100, 8, 2000, 2000)


def test_what_is_gone_is_marked_until_it_comes_back() -> None:
    gone = fit(*alerts(ZEROED), records.cleared_record(ZEROED))
    assert [a["cleared"] for a in detail("run", [gone])["alerts"]] == [True]
    back = fit(*alerts(ZEROED), records.cleared_record(ZEROED), *alerts(ZEROED))
    assert [a["cleared"] for a in detail("run", [back])["alerts"]] == [False]


def test_of_several_fits_the_last_one_speaks_and_no_alert_is_lost() -> None:
    first = fit(*alerts(HOT), records.summary_record(Summary("fail", (HOT,))))
    second = fit(*alerts(ZEROED), records.summary_record(Summary("warn", (ZEROED,))), time=2.0)
    seen = detail("run", [first, second])
    assert (seen["verdict"], seen["counts"]["error"], seen["earlier"]) == ("warn", 0, 1)
    assert [(a["code"], a["fit"]) for a in seen["alerts"]] == [("WD301", 2), ("WD101", 1)]


def test_the_first_loss_and_its_tolerance() -> None:
    values = {"first_loss": 2.5, "ln_k": math.log(10), "first_loss_error": 0.05}
    settings = {"options": {"WD101": {"tolerance": 0.6}}}
    told = records.state_record(0, "pass", {"loss": "first loss 2.500 (ln 10 = 2.303)"})
    found = fit(records.run_record(RunInfo(settings=settings)), records.scalars_record(0, values), told)
    loss = found.loss()
    assert loss is not None
    assert (loss["seen"], loss["name"], loss["tolerance"]) == (2.5, "ln 10", 0.6)
    assert (loss["note"], loss["slack"]) == pytest.approx((0.5, 0.2))
    assert fit(
        records.scalars_record(5, {"first_loss": 1.0}), records.scalars_record(9, {"first_loss": 7.0})
    ).loss() == {
        "seen": 1.0,
        "expected": None,
        "name": "expected",
        "note": 0.3,
        "tolerance": 1.0,
        "slack": 0.0,
    }
    assert fit().loss() is None


def test_ignored_and_explained_alerts_stay_visible() -> None:
    ended = Summary("pass", (), (ZEROED,), (Ignored(HOT, "WD101", "a warm start"),), unused_ignores=("WD5",))
    seen = detail("run", [fit(records.summary_record(ended))])
    assert [a["code"] for a in seen["explained"]] == ["WD301"]
    assert [(a["code"], a["entry"], a["reason"]) for a in seen["ignored"]] == [("WD101", "WD101", "a warm start")]
    assert seen["unused_ignores"] == ["WD5"]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        "[" * 100_000,
        "[1, null, [], {}]",
        '[{"type": "alert"}, {"type": "summary", "verdict": "great"}]',
        '[{"type": "scalars", "step": "x", "values": {}}, {"type": "state", "step": 1}]',
        '[{"type": "run", "run": 3}, {"type": "scalars", "step": 1, "values": [1]}]',
        '{"type": "alert", "alert": {"code": 3, "severity": "loud"}}',
        '[{"type": "scalars", "step": 1e999, "values": {}}, {"type": "state", "step": 1e999}]',
        '{"type": "alert", "alert": {"code": "WD1", "name": "x", "severity": "info", "message": "", "subjects": [{}]}}',
    ],
    ids=range(9),
)
def test_nonsense_is_counted_and_harmless(text: str | bytes) -> None:
    seen = Fit.of([(1.0, text), (2.0, records.encode(alerts(ZEROED)))])
    assert seen.unreadable >= 1
    found = detail("run", [seen])
    assert found["unreadable"] == seen.unreadable
    assert [a["code"] for a in found["alerts"]] == ["WD301"]
    records.encode(found)


def test_unknown_types_of_a_later_version_are_passed_over() -> None:
    assert fit({"type": "weather", "v": 1}).unreadable == 0


def test_long_texts_and_lists_are_cut() -> None:
    long = replace(ZEROED, subjects=tuple(f"layer{i}" for i in range(1000)), evidence=(("traceback", "x" * 10**6),))
    (seen,) = detail("run", [fit(*alerts(long))])["alerts"]
    assert (len(seen["subjects"]), seen["subjects_in_all"]) == (SUBJECTS, 1000)
    assert len(seen["evidence"][0][1]) == TEXT
    assert seen["silence"] == 'SanityWatchdog(ignore=["WD301"])'


def test_the_codes_of_a_run_count_places_and_sightings() -> None:
    other = replace(ZEROED, where="model.py:3", severity=Severity.ERROR, step=2, last_step=2, count=1)
    seen = row("run", [fit(*alerts(ZEROED, other))])["codes"]
    assert seen == {"WD301": {"name": "zeroed-parameter", "severity": "error", "places": 2, "step": 2, "count": 18}}
