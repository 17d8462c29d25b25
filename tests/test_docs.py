import importlib.util
import re
from pathlib import Path

import pytest

from sanity_watchdog import cli
from sanity_watchdog.checks import CHECKS

from .docs import ROOT, documents
from .gallery import EXAMPLES, scripts


@pytest.mark.parametrize(("path", "text"), documents(), ids=lambda v: v.name if isinstance(v, Path) else "")
def test_generated_documentation_is_current(path: Path, text: str) -> None:
    assert path.read_text() == text, "run python -m tests.docs"


@pytest.mark.parametrize(
    "path",
    [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "watchdog").rglob("*.md")), EXAMPLES / "README.md"],
    ids=lambda p: f"{p.parent.name}-{p.name}",
)
def test_every_code_and_link_in_the_documentation_exists(path: Path) -> None:
    text = path.read_text()
    codes = {c.code for c in CHECKS}
    named = set(re.findall(r"\bWD\d{3}\b", text))
    assert named <= codes, named - codes
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (path.parent / target).exists(), target


GUIDES = [ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md", EXAMPLES / "README.md"]


def commands(pattern: str) -> list[str]:
    """What follows in the guides wherever ``pattern`` matches."""
    found = [match for path in GUIDES for match in re.findall(pattern, path.read_text())]
    assert found, pattern
    return found


def test_programs_that_the_guides_name_exist() -> None:
    for module in commands(r"python -m (tests[\w.]*\w)"):
        assert importlib.util.find_spec(module), module
    for path in commands(r"python -m pytest (tests[\w/.]*\w)"):
        assert (ROOT / path).exists(), path
    faults = {f"examples/{script.path.name}": script.faults for script in scripts()}
    for path, fault in commands(r"python (examples/\w+\.py)(?: --(?:fault|fixed) ([\w-]+))?"):
        assert not fault or fault in faults[path], (path, fault)
        assert (ROOT / path).exists(), path


def test_our_command_takes_what_the_guides_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(r"`sanity-watchdog (explain [^`]+|checks)`"):
        assert cli.main(words.split()) == 0
    for words in commands(r"sanity-watchdog (report (?:[\w./-]+ ?)+)"):
        cli._parser().parse_args(words.split())
    assert "WD101" in capsys.readouterr().out
