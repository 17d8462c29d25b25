"""Lightning's own ways to start ranks: subprocesses, spawn, fork."""

import sys
from pathlib import Path

import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.records import read
from sanity_watchdog.reports.load import load

from .processes import launch


@pytest.mark.parametrize("launcher", ["ddp", "ddp_spawn", "ddp_fork"])
def test_a_fault_of_one_rank_reaches_rank_zero(tmp_path: Path, launcher: str) -> None:
    found = launch(launcher, "softmax-on-one", tmp_path, logger=True)
    assert found.statuses == [0], found.logs
    assert [(a["code"], a["ranks"]) for a in found.alerts()] == [("WD102", [1])]
    assert found.logs[0].count("WD102 double-softmax  ERROR") == 1
    assert not found.seen[0]["broken"]
    assert not found.seen[1]["broken"]
    assert {"WD601", "WD602", "WD604"} <= set(found.seen[0]["judged"])
    assert [r["type"] for r in read(tmp_path / "watchdog.rank1.jsonl").records][-1] == "summary"
    (events,) = tmp_path.glob("logs/**/events.out.*")
    assert b"WD102" in events.read_bytes()


def test_the_policy_stops_all_of_four_forked_ranks(tmp_path: Path) -> None:
    found = launch("ddp_fork", "softmax-on-one", tmp_path, world=4, fail_on="error")
    assert found.statuses == [1]
    assert "SanityCheckFailed" in found.logs[0]
    (run,) = load([tmp_path]).runs
    assert [(a.code, a.count) for a in run.summary.alerts] == [("WD102", 1)]
    assert run.summary.stopped_by == 'fail_on="error"'
    for record in sorted(tmp_path.glob("watchdog*.jsonl")):
        (summary,) = [r for r in read(record).records if r["type"] == "summary"]
        assert (summary["attempts"], summary["stopped_by"]) == (1, 'fail_on="error"'), record.name
    assert len(list(tmp_path.glob("watchdog*.jsonl"))) == 4


def test_a_launched_rank_that_dies_takes_the_job_with_it(tmp_path: Path) -> None:
    found = launch("ddp", "killed-after-its-alert", tmp_path)
    assert found.statuses in ([1], [-9]), "by the broken connection, or by Lightning's observer of its children"
    assert "WD102" in (tmp_path / "watchdog.rank1.jsonl").read_text()
    (run,) = load([tmp_path]).runs
    assert [a.code for a in run.failing(Severity.ERROR)] == ["WD102"]


@pytest.mark.parametrize("launcher", ["ddp_spawn", "ddp_fork"])
def test_a_launched_rank_that_raises_leaves_no_pass(tmp_path: Path, launcher: str) -> None:
    found = launch(launcher, "raising-between-samples", tmp_path)
    assert found.statuses == [1]
    assert "of the user's own" in found.logs[0]
    (run,) = load([tmp_path]).runs
    raised = "ValueError" if sys.version_info < (3, 13) else "SystemExit"
    assert (run.summary.verdict, run.summary.raised) == ("incomplete", raised)


def test_a_crash_in_a_forked_rank_is_explained(tmp_path: Path) -> None:
    found = launch("ddp_fork", "wrong-dtype", tmp_path)
    assert found.statuses == [1]
    assert "RuntimeError" in found.logs[0]
    (run,) = load([tmp_path]).runs
    assert [a.code for a in run.failing(Severity.ERROR)] == ["WD402"], "of the first rank; the other one is ended"
