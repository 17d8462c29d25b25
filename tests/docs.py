"""Generated documentation: ``python -m tests.docs`` writes it, ``tests/test_docs.py`` demands that it is current."""

from collections.abc import Iterator
from pathlib import Path

from sanity_watchdog.checks import CHECKS
from sanity_watchdog.reports.catalogue import catalogue, table

from .figures import cost, detection, others
from .gallery import EXAMPLES, overview

ROOT = Path(__file__).parents[1]
CATALOGUE = ROOT / "watchdog" / "sanity_watchdog" / "checks" / "README.md"
README = ROOT / "README.md"
SECTIONS = {
    "checks": lambda: table("watchdog/sanity_watchdog/checks/README.md"),
    "detection": detection,
    "cost": cost,
    "others": others,
}


def section(text: str, name: str, content: str) -> str:
    """``text`` with ``content`` between ``<!-- name -->`` and ``<!-- /name -->``."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(start)
    assert found, f"README.md has no section {name}"
    assert end in rest, f"section {name} of README.md has no end"
    return f"{before}{start}\n{content}{end}{rest.partition(end)[2]}"


def readme() -> str:
    """README.md with its generated sections made anew."""
    text = README.read_text()
    for name, make in SECTIONS.items():
        text = section(text, name, make())
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
