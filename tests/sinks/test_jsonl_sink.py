"""The canonical record on disk."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sanity_watchdog import records
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.evidence.readings import Layers, Scalars
from sanity_watchdog.sinks import JsonLinesSink
from sanity_watchdog.summary import Batch, RunInfo, Summary

ERROR = Alert("WD301", "zeroed-parameter", Severity.ERROR, "all zero", evidence=(("share", float("nan")),))


def opened(path: Path) -> JsonLinesSink:
    sink = JsonLinesSink()
    sink.open(RunInfo(record=str(path), versions={"torch": "2.13"}, settings={"ignore": ["WD1"]}))
    return sink


def kinds(path: Path) -> list[str]:
    found = records.read(path)
    assert not found.problems
    return [r["type"] for r in found.records]


def test_the_record_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "watchdog.jsonl"
    sink = opened(path)
    assert not path.parent.exists()
    readings = (Scalars(step=2, values={"first_loss": 2.3}), Layers(quantity="q", names=("a",), values=(1.0,)))
    sink.write(Batch(2, (ERROR,), cleared=(replace(ERROR, where="b"),), readings=readings))
    assert kinds(path) == ["run", "scalars", "alert", "cleared"]
    sink.close(Summary("fail", (ERROR,)))
    assert kinds(path) == ["run", "scalars", "alert", "cleared", "summary"]
    first, scalars, alert, _, summary = records.read(path).records
    assert first["run"]["versions"] == {"torch": "2.13"}
    assert (scalars["step"], scalars["values"]) == (2, {"first_loss": 2.3})
    assert records.alert_from_dict(alert["alert"]) == ERROR
    assert records.summary_from_record(summary).alerts == (ERROR,)
    for line in path.read_text("ascii").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_second_run_is_appended_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "watchdog.jsonl"
    opened(path).write(Batch(0, (ERROR,)))
    path.write_bytes(path.read_bytes()[:-9])
    opened(path).close(Summary("pass"))
    found = records.read(path)
    assert [r["type"] for r in found.records] == ["run", "run", "summary"]
    assert found.problems == ["1 unreadable line (line 2)"]


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = JsonLinesSink()
    sink.open(RunInfo(record=None))
    sink.write(Batch(0, (ERROR,)))
    sink.close(Summary("pass"))
    assert os.listdir() == []


def test_a_path_that_cannot_be_written_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        opened(tmp_path / "file" / "watchdog.jsonl").write(Batch(0, (ERROR,)))
