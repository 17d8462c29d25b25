"""Detection on a part of the corpus: one fault for each code, and healthy runs that are unlike each other.

``python -m tests.corpus`` runs all of it.
"""

import json
from pathlib import Path

import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks import CHECKS
from tests.corpus import CASES
from tests.corpus.case import Case
from tests.corpus.run import Result, Score, run

FOLDER = Path(__file__).parent / "corpus"
KNOWN = {check.code for check in CHECKS}
SLOW = ("WD132", "WD111", "WD112")
"""Codes whose runs train a language model; ``tests/observe`` covers them in fewer steps."""


def _one_per_code() -> list[Case]:
    chosen: dict[str, Case] = {}
    for case in CASES.values():
        if case.codes and case.world == 1:
            chosen.setdefault(case.codes[0], case)
    return [case for code, case in sorted(chosen.items()) if code not in SLOW]


def _some_healthy() -> list[Case]:
    return [case for case in CASES.values() if case.family.startswith("healthy_")][::3]


@pytest.mark.parametrize("case", _one_per_code(), ids=lambda case: f"{case.codes[0]}-{case.name}")
def test_a_fault_is_named_first(case: Case) -> None:
    result = run(case)
    assert result.named, result.messages
    assert result.first_named, result.messages
    assert not result.strays, result.messages
    assert result.ended_as_declared, result.error
    assert not result.broken


@pytest.mark.parametrize("case", _some_healthy(), ids=lambda case: case.name)
def test_a_healthy_run_is_quiet(case: Case) -> None:
    result = run(case)
    assert result.alarms == (), result.messages
    assert not result.error
    assert not result.broken


def test_the_cases_name_checks_that_exist() -> None:
    for case in CASES.values():
        assert {*case.codes, *case.first, *case.also} <= KNOWN, case.name
        assert set(case.first) <= set(case.codes), case.name


@pytest.mark.parametrize("name", ["map.json", "map_reports.json"])
def test_the_maps_name_checks_that_exist(name: str) -> None:
    content = json.loads((FOLDER / name).read_text())
    assert {code for codes in content["symptoms"].values() for code in codes} <= KNOWN
    assert all(content["symptoms"].values())
    assert [Severity.parse(s) for s in content["count"]] == [Severity.WARNING, Severity.ERROR]


def test_the_score_counts() -> None:
    ill, well = "softmax-layer-on-a-cnn", "softmax-layer-on-a-cnn-fixed"
    results = [
        Result(ill, 0, ("WD102", "WD141")),
        Result(ill, 1, ("WD141", "WD102")),
        Result(ill, 2),
        Result(well, 0, ("WD102",)),
        Result(well, 1, broken=True),
    ]
    expected = Score(faulty=3, named=2, first_named=1, strays=2, healthy=2, false_alarms=1, broken=1)
    assert Score.of(results) == expected
