"""The catalogue of checks as one Markdown page, from their docstrings."""

from typing import Any

from ..checks import CHECKS
from ..checks.check import Check
from .symptoms import SYMPTOMS

GROUPS = {
    "WD0": "The watchdog itself",
    "WD1": "Loss, labels and data",
    "WD2": "Gradients and number formats",
    "WD3": "Parameters and optimizers",
    "WD4": "Device, dtype and portability",
    "WD5": "Modes, schedules and the loop",
    "WD6": "Several processes",
}


def anchor(check: Check[Any]) -> str:
    """Target of a link to a check's page."""
    return f"{check.code}-{check.name}".lower()


def table(link: str = "") -> str:
    """All checks by group: code, name, usual severity, what it sees. ``link``: page that the names lead to."""
    lines = ["", "The severity is the usual one; an alert is milder or graver where its evidence says so."]
    for prefix, title in GROUPS.items():
        lines += ["", f"**{title}**", "", "| code | name | severity | finds |", "| --- | --- | --- | --- |"]
        for check in (c for c in CHECKS if c.code.startswith(prefix)):
            name = f"[{check.name}]({link}#{anchor(check)})"
            lines.append(
                f"| {check.code} | {name} | {check.severity.name} | {check.summary.replace('|', chr(92) + '|')} |"
            )
    return "\n".join(lines[1:]) + "\n"


def symptoms() -> str:
    """What people see, and the checks that look for a cause."""
    links = {c.code: f"[{c.code}](#{anchor(c)})" for c in CHECKS}
    lines = []
    for title, rows in SYMPTOMS.items():
        lines += ["", f"**{title}**", "", "| what you see | checks that look for a cause |", "| --- | --- |"]
        lines += [f"| {row.seen} | {' '.join(links[code] for code in row.codes)} |" for row in rows]
    return "\n".join(lines[1:]) + "\n"


def page(check: Check[Any]) -> str:
    """One check's page."""
    facts = [f"Severity {check.severity.name} unless the evidence decides otherwise."]
    if check.options:
        facts.append("Options: " + ", ".join(f"`{k}` ({v!r})" for k, v in check.options.items()) + ".")
    if check.implied_by:
        facts.append("Left out where one of these explains it: " + ", ".join(check.implied_by) + ".")
    return f"### {check.code} {check.name}\n\n{check.page}\n\n{' '.join(facts)}\n"


def catalogue() -> str:
    """The whole page."""
    parts = [
        "# Catalogue of checks\n",
        "Generated from the checks' docstrings by `python -m tests.docs`. A check's function is in the module of its"
        " subject beside this file; `sanity-watchdog explain CODE` prints a single page.\n",
        "[By symptom](#by-symptom): what you see, and the checks that look for a cause.\n",
        table(),
        "## By symptom\n",
        "Likeliest cause first. `sanity-watchdog explain loss stuck at 2.303` searches this table and the pages.\n",
        symptoms(),
    ]
    for prefix, title in GROUPS.items():
        parts.append(f"## {title}\n")
        parts += [page(c) for c in CHECKS if c.code.startswith(prefix)]
    return "\n".join(parts)
