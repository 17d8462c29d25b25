"""The record format survives everything that a run can put into it or do to its file."""

import json
import math
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanity_watchdog import records
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.summary import Ignored, RunInfo, Summary

TEXT = st.text(st.characters(), max_size=30)
VALUES = st.one_of(TEXT, st.integers(), st.floats(), st.booleans(), st.none())
ALERTS = st.builds(
    Alert,
    code=st.just("WD999"),
    name=TEXT,
    severity=st.sampled_from(Severity),
    message=TEXT,
    step=st.integers(0, 2**60),
    hint=TEXT,
    subjects=st.lists(TEXT, max_size=3).map(tuple),
    where=TEXT,
    evidence=st.dictionaries(TEXT, VALUES, max_size=4).map(lambda d: tuple(d.items())),
    epoch=st.integers(0, 100),
    stage=st.sampled_from(["train", "validation"]),
    ranks=st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    count=st.integers(1, 10**9),
)


@given(ALERTS)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_alert_comes_back_equal(alert: Alert) -> None:
    line = records.encode(records.alert_record(alert))
    assert line.isascii()
    assert "\n" not in line
    back = records.alert_from_dict(records.decode(line)["alert"])
    assert back == alert
    assert back == pickle.loads(pickle.dumps(alert))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 5e-324, -0.0, 2**53 + 1, 0.1, 1.7976931348623157e308])
def test_numbers_are_exact(value: float) -> None:
    line = records.encode({"x": value})
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = records.decode(line)["x"]
    assert repr(back) == repr(value)
    assert type(back) is type(value)


def test_evidence_keeps_its_order() -> None:
    alert = Alert("WD101", "n", Severity.INFO, "m", evidence=(("z", 1), ("a", 2.0), ("m", None)))
    assert (
        records.alert_from_dict(records.decode(records.encode(records.alert_to_dict(alert)))).evidence == alert.evidence
    )


def test_summary_comes_back_equal() -> None:
    alert = Alert("WD301", "zeroed-parameter", Severity.ERROR, "all zero", evidence=(("share", math.nan),))
    summary = Summary(
        verdict="fail",
        alerts=(alert,),
        explained=(replace(alert, code="WD302"),),
        ignored=(Ignored(alert, "WD301:*.mask", "meant so"),),
        judged=("WD101", "WD301"),
        skipped={"WD201": "no fp16"},
        broken={"check WD102": "Traceback"},
        unused_ignores=("WD9",),
        vitals={"loss": "first loss 2.3"},
        step=7,
        batches=8,
        attempts=9,
        stopped_by="fail_on",
    )
    record = records.decode(records.encode(records.summary_record(summary)))
    assert record["type"] == "summary"
    assert records.summary_from_record(record) == summary


@pytest.mark.parametrize(
    "change",
    [{"verdict": "fine"}, {"verdict": None}, {"alerts": [{}]}, {"ignored": [{}]}, {"step": None}, {"skipped": 3}],
)
def test_a_malformed_summary_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not a|unknown"):
        records.summary_from_record(records.summary_record(Summary("pass")) | change)


def test_objects_without_a_place_in_json_become_text() -> None:
    assert records.decode(records.encode({"path": Path("a"), "codes": {"b", "a"}, "pair": (1, 2)})) == {
        "path": "a",
        "codes": ["a", "b"],
        "pair": [1, 2],
    }


def _written(path: Path, *, tail: bytes = b"") -> Path:
    lines = [records.encode(records.run_record(RunInfo())), records.encode(records.scalars_record(3, {"x": 1.0}))]
    path.write_bytes("".join(line + "\n" for line in lines).encode() + tail)
    return path


@pytest.mark.parametrize(
    "tail", [b'{"v":1,"type":"al', b'{"v":1', b"{", b'{"v":1,"type":"alert","alert":{"code":"\xe2\x82']
)
def test_a_torn_last_line_costs_only_itself(tmp_path: Path, tail: bytes) -> None:
    found = records.read(_written(tmp_path / "w.jsonl", tail=tail))
    assert [r["type"] for r in found.records] == ["run", "scalars"]
    assert found.torn
    assert found.problems == []


def test_a_whole_last_line_without_its_end_counts(tmp_path: Path) -> None:
    found = records.read(_written(tmp_path / "w.jsonl", tail=b'{"v":1,"type":"summary"}'))
    assert [r["type"] for r in found.records] == ["run", "scalars", "summary"]
    assert not found.torn


def test_unreadable_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    tail = b'nonsense\n[1,2]\n{"v":1}\n\xff\xfe\x00\n' + b"[" * 100_000 + b'\n{"v":1,"type":"summary"}\n'
    found = records.read(_written(tmp_path / "w.jsonl", tail=tail))
    assert [r["type"] for r in found.records] == ["run", "scalars", "summary"]
    assert found.problems == ["5 unreadable lines (line 3, 4, 5, …)"]


def test_a_newer_format_is_said_to_be_newer(tmp_path: Path) -> None:
    found = records.read(_written(tmp_path / "w.jsonl", tail=b'{"v":99,"type":"alert"}\n'))
    assert len(found.records) == 2
    assert found.problems == ["written in format 99; this version reads up to format 1"]


@pytest.mark.parametrize(
    "data", [{}, {"code": "WD1"}, {"code": 1, "name": "n", "severity": "error", "message": "m"}, {"severity": "loud"}]
)
def test_what_is_no_alert_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not an alert|unknown severity"):
        records.alert_from_dict(data)


def test_unknown_fields_of_later_versions_are_ignored() -> None:
    alert = Alert("WD101", "n", Severity.INFO, "m")
    assert records.alert_from_dict(records.alert_to_dict(alert) | {"colour": "red"}) == alert


def test_reading_imports_neither_torch_nor_tensorboard() -> None:
    program = (
        "import sys, sanity_watchdog.records; "
        "print([m for m in ('torch', 'lightning', 'tensorboard', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
