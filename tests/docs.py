"""Generated documentation: ``python -m tests.docs`` writes it, ``tests/test_docs.py`` demands that it is current."""

import re
from collections.abc import Iterator
from pathlib import Path

from sanity_watchdog.checks import CHECKS
from sanity_watchdog.reports.catalogue import catalogue, table

from .gallery import EXAMPLES, overview

ROOT = Path(__file__).parents[1]
CATALOGUE = ROOT / "watchdog" / "sanity_watchdog" / "checks" / "README.md"
README = ROOT / "README.md"
SECTIONS = {"checks": lambda: table("watchdog/sanity_watchdog/checks/README.md")}


def readme() -> str:
    """README.md with its generated sections, between ``<!-- name -->`` and ``<!-- /name -->``, made anew."""
    text = README.read_text()
    for name, make in SECTIONS.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        text, n = re.subn(
            re.escape(start) + ".*?" + re.escape(end),
            lambda _: f"{start}\n{make()}{end}",
            text,
            flags=re.DOTALL,
        )
        assert n == 1, f"README.md has no section {name}"
    return text


def documents() -> Iterator[tuple[Path, str]]:
    """Each generated file and what it should hold."""
    yield CATALOGUE, catalogue()
    yield README, readme()
    yield EXAMPLES / "README.md", overview({c.code: c.name for c in CHECKS})


if __name__ == "__main__":
    for path, text in documents():
        path.write_text(text)
        print(path.relative_to(ROOT))
