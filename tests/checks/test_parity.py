"""Every check has a page, a quiet and a firing row; every firing row has a golden rendering."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, render
from sanity_watchdog.checks import CHECKS, Check, Skip
from sanity_watchdog.evidence.base import Evidence

from . import __path__ as folder

GOLDEN = Path(__file__).parent / "golden"
HEADINGS = ("What it sees", "Why it matters", "How to fix", "When to ignore", "Limits", "Sources")
BY_CODE = {c.code: c for c in CHECKS}


def rows(name: str) -> list[tuple[Check[Any], Evidence]]:
    modules = [importlib.import_module(f"{__package__}.{m.name}") for m in pkgutil.iter_modules(folder)]
    return [row for module in modules for row in getattr(module, name, ())]


def alerts_of(check: Check[Any], seen: Evidence) -> list[Alert]:
    return [f for f in check(seen) if isinstance(f, Alert)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.code)
def test_page(check: Check[Any]) -> None:
    found = re.findall(r"^\*\*(.+?)\.\*\*", check.page, re.MULTILINE)
    assert tuple(found) == HEADINGS
    assert 10 < len(check.summary) < 121
    assert check.summary.endswith(".")


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.code)
def test_the_code_of_a_page_is_python(check: Check[Any]) -> None:
    assert "::\n" not in check.page
    blocks = re.findall(r"^```python\n(.*?)\n```$", check.page, re.M | re.S)
    assert len(blocks) * 2 == check.page.count("```")
    for block in blocks:
        ast.parse(block)


def test_codes_and_names_are_unique_sorted_and_legal() -> None:
    codes, names = [c.code for c in CHECKS], [c.name for c in CHECKS]
    assert codes == sorted(set(codes))
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert re.fullmatch(r"WD[0-6]\d\d", check.code)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.name)
        assert not re.search(r"\b(check|avoid|do-not|use|error|warning)\b", check.name)


@pytest.mark.parametrize("check", [c for c in CHECKS if c.code != "WD001"], ids=lambda c: c.code)
def test_a_quiet_row_is_quiet(check: Check[Any]) -> None:
    quiet = [seen for c, seen in rows("QUIET") if c.code == check.code]
    assert quiet, f"{check.code} has no quiet row"
    for seen in quiet:
        assert not alerts_of(check, seen), seen
    judged = [seen for seen in quiet if not any(isinstance(f, Skip) for f in check(seen))]
    assert judged, f"{check.code} is only ever skipped in its quiet rows"


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.code)
def test_a_firing_row_fires_as_the_golden_text_says(check: Check[Any], request: pytest.FixtureRequest) -> None:
    firing = [seen for c, seen in rows("FIRING") if c.code == check.code]
    assert firing, f"{check.code} has no firing row"
    texts = []
    for seen in firing:
        alerts = alerts_of(check, seen)
        assert alerts, seen
        for alert in alerts:
            assert (alert.code, alert.name) == (check.code, check.name)
            assert len(alert.message) <= 100, alert.message
            assert alert.hint, alert
            texts.append(render(alert))
    golden = GOLDEN / f"{check.code}.txt"
    text = "\n\n".join(texts) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), (
        f"{golden.name} is not current: run pytest --update-golden and look at the change"
    )


def test_no_golden_text_without_a_check() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} <= set(BY_CODE)
