"""Whatever lies in the folder: the readable part is reported, the rest is named."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sanity_watchdog import records
from sanity_watchdog.alerts import Severity
from sanity_watchdog.reports.load import load
from sanity_watchdog.summary import Batch, Summary

from .samples import ERROR, HOSTILE, NOTE, write


def verdicts(*paths: Path) -> list[str]:
    return [run.verdict for run in load(paths).runs]


def test_a_finished_run(tmp_path: Path) -> None:
    summary = Summary("fail", (ERROR,), judged=("WD301",), step=9)
    loaded = load([write(tmp_path / "watchdog.jsonl", Batch(1, (NOTE,)), summary=summary)])
    (run,) = loaded.runs
    assert run.summary == summary
    assert run.info["versions"] == {"torch": "2.13"}
    assert (run.finished, run.problems, loaded.problems) == (True, (), ())
    assert [loaded.exit_code(t) for t in (Severity.ERROR, Severity.INFO, None)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("news", "verdict", "code"),
    [((), "incomplete", 2), ((NOTE,), "incomplete", 2), ((HOSTILE,), "incomplete", 2), ((HOSTILE, ERROR), "fail", 1)],
    ids=["nothing", "note", "warning", "error"],
)
def test_a_killed_run_is_never_a_pass(tmp_path: Path, news: tuple[records.Alert, ...], verdict: str, code: int) -> None:
    loaded = load([write(tmp_path / "watchdog.jsonl", Batch(5, news, cleared=(NOTE,)))])
    (run,) = loaded.runs
    assert (run.verdict, run.finished, loaded.exit_code(Severity.ERROR)) == (verdict, False, code)
    assert run.summary.alerts == tuple(sorted(news, key=lambda a: -a.severity))


def test_the_last_sighting_of_an_alert_holds(tmp_path: Path) -> None:
    news = [Batch(8, (ERROR,)), Batch(30, (replace(ERROR, count=10, last_step=30),))]
    (run,) = load([write(tmp_path / "watchdog.jsonl", *news)]).runs
    assert [(a.count, a.last_step) for a in run.summary.alerts] == [(10, 30)]
    assert run.summary.step == 30


def test_every_fit_of_one_file_is_a_run(tmp_path: Path) -> None:
    path = tmp_path / "watchdog.jsonl"
    write(path, Batch(1, (ERROR,)))
    write(path, summary=Summary("pass"))
    first, second = load([path]).runs
    assert (first.verdict, second.verdict) == ("fail", "pass")
    assert (first.name, second.name) == (f"{path} (fit 1 of 2)", f"{path} (fit 2 of 2)")


def test_a_torn_last_line_is_no_problem_of_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "watchdog.jsonl", Batch(1, (ERROR,)), Batch(2, (NOTE,)))
    path.write_bytes(path.read_bytes()[:-20])
    (run,) = load([path]).runs
    assert [a.code for a in run.summary.alerts] == ["WD301"]
    assert run.problems == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b'{"v":1,"type":"ru', "no whole record in it"),
        (bytes(range(256)) * 99, "not a watchdog record"),
        (b"step,loss\n1,2\n", "not a watchdog record"),
        (b'{"v":7,"type":"run"}\n', "written in format 7; this version reads up to format 1"),
    ],
    ids=["empty", "blank", "torn", "binary", "csv", "newer"],
)
def test_what_is_no_record_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "watchdog.jsonl"
    path.write_bytes(content)
    good = write(tmp_path / "good" / "watchdog.jsonl", summary=Summary("pass"))
    loaded = load([path])
    assert loaded.problems == (f"{path}: {why}",)
    assert loaded.exit_code(Severity.ERROR) == 2
    both = load([path, good])
    assert ([r.verdict for r in both.runs], both.exit_code(Severity.ERROR)) == (["pass"], 2)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "alert"},
        {"type": "alert", "alert": {"code": 3}},
        {"type": "alert", "alert": []},
        {"type": "summary", "verdict": "fine"},
        {"type": "summary", "verdict": ["pass"]},
        {"type": "scalars", "step": "soon"},
    ],
    ids=str,
)
def test_a_malformed_record_is_named_and_the_rest_is_used(tmp_path: Path, record: dict[str, object]) -> None:
    path = write(tmp_path / "watchdog.jsonl", Batch(1, (ERROR,)))
    with path.open("a") as file:
        file.write(records.encode({"v": 1, **record}) + "\n")
    (run,) = load([path]).runs
    assert [a.code for a in run.summary.alerts] == ["WD301"]
    assert len(run.problems) == 1
    assert f"type {record['type']} is malformed" in run.problems[0]


def test_a_run_that_says_nothing_of_itself_is_still_a_run(tmp_path: Path) -> None:
    path = tmp_path / "watchdog.jsonl"
    path.write_text('{"v":1,"type":"run","run":3}\n' + records.encode(records.summary_record(Summary("pass"))) + "\n")
    loaded = load([path])
    assert ([r.verdict for r in loaded.runs], loaded.exit_code(Severity.ERROR)) == (["pass"], 2)


def test_a_record_of_an_unknown_type_is_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "watchdog.jsonl", Batch(0, (NOTE,)))
    with path.open("a") as file:
        file.write('{"v":1,"type":"weather"}\n' + records.encode(records.summary_record(Summary("pass"))) + "\n")
    (run,) = load([path]).runs
    assert (run.verdict, run.problems) == ("pass", ())


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "other.jsonl").write_text("{}")
    loaded = load([tmp_path / "missing", tmp_path / "empty"])
    assert set(loaded.problems) == {
        f"{tmp_path}/missing: No such file or directory",
        f"{tmp_path}/empty: no watchdog.jsonl in this folder: was a run watched, and its record put there?",
    }
    assert loaded.exit_code(None) == 2


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "good" / "watchdog.jsonl", summary=Summary("pass"))
    write(tmp_path / "shut" / "watchdog.jsonl", summary=Summary("pass"))
    refused, scan, opened = str(tmp_path / "shut"), os.scandir, Path.open

    def scandir(path: str) -> object:
        if os.fspath(path) == refused:
            raise PermissionError(13, "Permission denied", refused)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    loaded = load([tmp_path])
    assert ([r.verdict for r in loaded.runs], loaded.problems) == (["pass"], (f"{refused}: Permission denied",))

    def shut(path: Path, *args: object, **kwargs: object) -> object:
        if os.fspath(path).startswith(refused):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return opened(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", shut)
    loaded = load([tmp_path / "shut" / "watchdog.jsonl"])
    assert loaded.problems == (f"{refused}/watchdog.jsonl: Permission denied",)
    assert loaded.exit_code(Severity.ERROR) == 2


def test_a_thousand_runs_in_one_folder_in_natural_order(tmp_path: Path) -> None:
    for number in range(1000):
        verdict, alerts = ("fail", (ERROR,)) if number == 700 else ("pass", ())
        write(tmp_path / f"version_{number}" / "watchdog.jsonl", summary=Summary(verdict, alerts))
    heard: list[tuple[int, int]] = []
    loaded = load([tmp_path], lambda done, total: heard.append((done, total)))
    assert [run.verdict for run in loaded.runs].index("fail") == 700
    assert len(loaded.runs) == 1000
    assert heard[-1] == (1000, 1000)
    assert loaded.exit_code(Severity.ERROR) == 1


def test_the_same_record_given_twice_counts_once(tmp_path: Path) -> None:
    path = write(tmp_path / "watchdog.jsonl", summary=Summary("pass"))
    assert verdicts(path, tmp_path, path) == ["pass"]
