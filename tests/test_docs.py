import re
from pathlib import Path

import pytest

from sanity_watchdog.checks import CHECKS

from .docs import ROOT, documents
from .gallery import EXAMPLES


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
