"""Records of several ranks are one run."""

from dataclasses import replace
from pathlib import Path

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.records import run_record
from sanity_watchdog.reports.load import load
from sanity_watchdog.sinks import JsonLinesSink
from sanity_watchdog.summary import Batch, RunInfo, Summary

from .samples import ERROR, HOSTILE, NOTE


def record(path: Path, *alerts: Alert, rank: int = 0, started: float = 100.0, summary: Summary | None = None) -> Path:
    """A fit of one rank; killed where there is no ``summary``."""
    sink = JsonLinesSink()
    sink.open(RunInfo(record=str(path), rank=rank, world=2, started=started))
    sink.write(Batch(1, alerts))
    if summary is not None:
        sink.close(summary)
    return path


def test_what_reached_rank_zero_is_told_once_as_it_has_it(tmp_path: Path) -> None:
    merged = replace(ERROR, ranks=(1, 0), count=9)
    record(tmp_path / "watchdog.jsonl", merged, summary=Summary("fail", (merged,), judged=("WD301",)))
    record(tmp_path / "watchdog.rank1.jsonl", ERROR, rank=1, summary=Summary("fail", (ERROR,)))
    (run,) = load([tmp_path]).runs
    assert run.summary == Summary("fail", (merged,), judged=("WD301",))
    assert run.name == str(tmp_path / "watchdog.jsonl")


def test_symptoms_that_rank_zero_explained_stay_explained(tmp_path: Path) -> None:
    record(tmp_path / "watchdog.jsonl", HOSTILE, summary=Summary("warn", (HOSTILE,), explained=(ERROR,)))
    record(tmp_path / "watchdog.rank1.jsonl", ERROR, rank=1, summary=Summary("fail", (ERROR,)))
    (run,) = load([tmp_path]).runs
    assert (run.verdict, run.summary.alerts) == ("warn", (HOSTILE,))


@pytest.mark.parametrize(
    ("alert", "verdict"), [(NOTE, "pass"), (HOSTILE, "warn"), (ERROR, "fail")], ids=["info", "warning", "error"]
)
def test_what_never_reached_rank_zero_counts(tmp_path: Path, alert: Alert, verdict: str) -> None:
    record(tmp_path / "watchdog.jsonl", summary=Summary("pass"))
    record(tmp_path / "watchdog.rank1.jsonl", replace(alert, ranks=(1,)), rank=1)
    (run,) = load([tmp_path]).runs
    assert (run.verdict, [(a.code, a.ranks) for a in run.summary.alerts]) == (verdict, [(alert.code, (1,))])
    assert run.finished


def test_a_killed_rank_zero_is_helped_out(tmp_path: Path) -> None:
    record(tmp_path / "watchdog.jsonl", NOTE)
    record(tmp_path / "watchdog.rank1.jsonl", ERROR, rank=1, summary=Summary("fail", (ERROR,)))
    (run,) = load([tmp_path]).runs
    assert (run.verdict, run.finished) == ("fail", False)
    assert run.summary.alerts == (ERROR, NOTE)


def test_a_rank_alone_is_a_run(tmp_path: Path) -> None:
    path = record(tmp_path / "watchdog.rank3.jsonl", ERROR, rank=3, summary=Summary("fail", (ERROR,)))
    assert [run.name for run in load([tmp_path]).runs] == [str(path)]
    record(tmp_path / "watchdog.jsonl", summary=Summary("pass"))
    assert [run.name for run in load([path]).runs] == [str(path)], "asked for by its name"


def test_fits_of_one_file_are_matched_by_time(tmp_path: Path) -> None:
    main, other = tmp_path / "watchdog.jsonl", tmp_path / "watchdog.rank1.jsonl"
    record(main, started=100, summary=Summary("pass"))
    record(main, started=900, summary=Summary("pass"))
    record(other, ERROR, rank=1, started=901)
    assert [run.verdict for run in load([tmp_path]).runs] == ["pass", "fail"]


def test_problems_of_a_ranks_record_are_named(tmp_path: Path) -> None:
    record(tmp_path / "watchdog.jsonl", summary=Summary("pass"))
    path = record(tmp_path / "watchdog.rank1.jsonl", rank=1, summary=Summary("pass"))
    with path.open("a") as file:
        file.write("no record\n")
    (run,) = load([tmp_path]).runs
    assert len(run.problems) == 1
    assert run.problems[0].startswith("watchdog.rank1.jsonl: 1 unreadable line")


def test_records_say_which_rank_they_are_of() -> None:
    assert run_record(RunInfo(rank=3, world=4))["run"]["rank"] == 3
