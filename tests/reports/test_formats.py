"""Every format against its golden file, and read back by those who must understand it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.records import alert_from_dict
from sanity_watchdog.records import decode as decoded
from sanity_watchdog.reports import data, github, junit, markdown, text
from sanity_watchdog.reports.load import Loaded, WatchedRun, load
from sanity_watchdog.summary import Summary

from . import samples

GOLDEN = Path(__file__).with_name("golden")
FORMATS: dict[str, Callable[[Loaded], str]] = {
    "report.txt": text.report,
    "report.md": markdown.report,
    "report.json": data.report,
    "report.xml": lambda loaded: junit.report(loaded, Severity.ERROR),
    "annotations.txt": lambda loaded: github.report(loaded, {}),
}


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    monkeypatch.chdir(tmp_path)
    samples.runs(Path("logs"))
    return load([Path("logs")])


@pytest.mark.parametrize("name", FORMATS)
def test_golden(loaded: Loaded, name: str, request: pytest.FixtureRequest) -> None:
    written = FORMATS[name](loaded)
    if request.config.getoption("--update-golden"):
        (GOLDEN / name).write_text(written, encoding="utf-8")
    assert written == (GOLDEN / name).read_text(encoding="utf-8")


def test_json_is_strict_and_holds_the_alerts_exactly(loaded: Loaded) -> None:
    written = data.report(loaded)
    json.loads(written, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = decoded(written)
    assert [run["verdict"] for run in found["runs"]] == ["fail", "incomplete", "incomplete", "pass"]
    assert [alert_from_dict(a) for a in found["runs"][0]["alerts"]] == [samples.ERROR, samples.HOSTILE, samples.NOTE]
    assert len(found["problems"]) == 1


def test_junit_is_read_back(loaded: Loaded) -> None:
    xml = JUnitXml.fromstring(junit.report(loaded, Severity.ERROR).encode())
    failed, killed, broken, quiet, unreadable = xml
    results = {case.name: [type(r) for r in case.result] for case in failed}
    assert results == {
        "WD101 initial-loss-off": [],
        "WD123 unscaled-input": [],
        "WD201 fp16-underflow": [Skipped],
        "WD202 fp16-overflow": [Skipped],
        "WD301 zeroed-parameter": [Failure],
        "WD302 stuck-at-zero": [Skipped],
        "WD303 non-finite-parameter": [],
        "WD699": [Skipped],
    }
    (skipped,) = next(case for case in failed if case.name.startswith("WD302")).result
    assert "pruned on purpose" in skipped.message
    for suite in (killed, broken, unreadable):
        assert [type(r) for case in suite for r in case.result].count(Error) == 1
    assert (quiet.failures, quiet.errors, quiet.skipped, quiet.tests) == (0, 0, 1, 3)
    assert (xml.failures, xml.errors, xml.tests) == (1, 3, sum(s.tests for s in xml))


def test_junit_fails_at_the_threshold_asked_for(loaded: Loaded) -> None:
    for threshold, failures in ((None, 0), (Severity.ERROR, 1), (Severity.WARNING, 3), (Severity.INFO, 4)):
        assert JUnitXml.fromstring(junit.report(loaded, threshold).encode()).failures == failures


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("logs/v1.2/watchdog.jsonl", "sanity-watchdog.logs.v1_2"),
        ("../watchdog.jsonl (fit 2 of 3)", "sanity-watchdog.watchdog (fit 2 of 3)"),
        ("/tmp/mine.watchdog.jsonl", "sanity-watchdog.tmp.mine_watchdog"),
        ("C:\\logs\\v1\\watchdog.jsonl", "sanity-watchdog.C:.logs.v1"),
    ],
)
def test_junit_class_names_have_dots_between_folders_only(name: str, shown: str) -> None:
    assert junit.class_name(name) == shown


@pytest.mark.parametrize(
    ("started", "ended", "times"),
    [
        (1.8e9, 1.8e9 + 2.5, ("2027-01-15T08:00:00+00:00", "2.500")),
        (1.8e9, 0.0, ("2027-01-15T08:00:00+00:00", None)),
        (0.0, 1.8e9, (None, None)),
        (float("nan"), 1.8e9, (None, None)),
        (1e300, 1e300, (None, None)),
    ],
)
def test_junit_says_when_a_run_began_and_how_long_it_took(
    started: float, ended: float, times: tuple[str | None, ...]
) -> None:
    run = WatchedRun("r", Summary("pass"), info={"started": started}, ended=ended)
    (suite,) = ElementTree.fromstring(junit.report(Loaded((run,)), None).encode())
    assert (suite.get("timestamp"), suite.get("time")) == times


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub's runner reads it."""
    match = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line)
    assert match is not None, line
    kind, properties, message = match.groups()

    def plain(value: str, *more: tuple[str, str]) -> str:
        for code, char in (*more, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            value = value.replace(code, char)
        return value

    pairs = (part.split("=", 1) for part in properties.split(","))
    return kind, {k: plain(v, ("%3A", ":"), ("%2C", ",")) for k, v in pairs}, plain(message)


def annotations(loaded: Loaded, **environ: str) -> list[tuple[str, dict[str, str], str]]:
    return [parsed(line) for line in github.report(loaded, environ).splitlines() if line.startswith("::")]


def test_annotations_are_escaped_and_errors_come_first(loaded: Loaded) -> None:
    found = annotations(loaded)
    assert [kind for kind, _, _ in found] == ["error", "warning", "notice", "warning", "warning", "warning"]
    assert found[0][1] == {"file": "train.py", "line": "31", "title": "WD301 zeroed-parameter"}
    assert found[1][2].startswith("100% of a|b: <script>alert(1)</script>, `x`\\x0anext line\na,b, _c_, d::e%0A\n")
    assert "and 1 more" in found[1][2]


def test_annotations_point_into_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repo" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo" / "sub")
    places = {"train.py:3": "sub/train.py", f"{tmp_path}/repo/a.py:3": "a.py", "/elsewhere/b.py:3": None, "odd": None}
    for where, file in places.items():
        run = WatchedRun("r", Summary("fail", (replace(samples.ERROR, where=where),)))
        ((_, properties, _),) = annotations(Loaded((run,)), GITHUB_WORKSPACE=str(tmp_path / "repo"))
        assert properties.get("file") == file


def test_each_line_of_one_code_has_an_annotation_of_its_own() -> None:
    def at(line: int, code: str = "WD301") -> Alert:
        return replace(samples.ERROR, code=code, where=f"train.py:{line}")

    first = WatchedRun("a", Summary("fail", (at(1), at(2), at(3), at(4, "WD302"))))
    found = annotations(Loaded((first, replace(first, name="b"))))
    assert [(p["title"][:5], p["line"]) for _, p, _ in found] == [
        ("WD301", "1"),
        ("WD302", "4"),
        ("WD301", "2"),
        ("WD301", "3"),
    ]
    assert all("of a and 1 more" in text for _, _, text in found)


def test_what_github_would_drop_is_named() -> None:
    alerts = tuple(replace(samples.ERROR, code=f"WD3{i:02}") for i in range(30))
    found = annotations(Loaded((WatchedRun("r", Summary("fail", alerts)),)))
    assert len(found) == 10
    assert found[-1][1]["title"] == "21 more"
    assert "WD309, WD310" in found[-1][2]


def test_job_summary_is_appended_and_bounded(loaded: Loaded, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    github.write_summary(loaded, {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text() == "before\n" + markdown.report(loaded)
    many = Loaded(tuple(WatchedRun(f"run{i}", Summary("fail", (samples.ERROR,) * 40)) for i in range(200)))
    github.write_summary(many, {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.stat().st_size < 1_048_576
    assert path.read_text().endswith("GitHub takes no more\n")
    github.write_summary(loaded, {})


def test_markdown_table_keeps_its_shape_whatever_the_names(loaded: Loaded) -> None:
    rows = [line for line in markdown.report(loaded).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {4}
    assert not any("<script" in line for line in rows)


def test_a_long_table_is_cut() -> None:
    table = markdown.table([samples.ERROR] * 100)
    assert table.count("\n") == 1 + markdown.ROWS + 1
    assert "and 60 more" in table


def test_nothing_found_is_reported_in_every_format() -> None:
    nothing = Loaded((), ("logs: no watchdog.jsonl in this folder",))
    for name, report in FORMATS.items():
        assert "no watchdog.jsonl in this folder" in report(nothing), name
