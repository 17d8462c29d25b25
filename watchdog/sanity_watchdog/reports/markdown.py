"""Alerts and verdicts as Markdown: for TensorBoard's Text tab, for job summaries, for ``report --format markdown``."""

import re
from collections.abc import Mapping, Sequence

from ..alerts import Alert, measured, named, place, printable, silencer
from ..summary import Batch, Summary
from .closing import checks_line, tally, vitals_line
from .load import Loaded
from .run import WatchedRun

ROWS = 40
"""TensorBoard takes 20 ms per text sample of this length; longer tables make its tab slow."""
HEADER = "| Problem | Where and when | What to do |\n| --- | --- | --- |"
_SPECIAL = re.compile(r"[\\`*_\[\]<>&|~#]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "~": "&#126;", "#": "&#35;"}


def escaped(text: str, limit: int = 240) -> str:
    """Text of the user's program that Markdown leaves as it is: one line, bounded, nothing in it is markup."""
    return _SPECIAL.sub(lambda m: _ENTITIES.get(m[0], "\\" + m[0]), printable(text, limit))


def table(alerts: Sequence[Alert], rows: int = ROWS) -> str:
    """Alerts as a table of three wide columns, cut after ``rows``."""
    lines = [HEADER, *(_row(a) for a in alerts[:rows])]
    if len(alerts) > rows:
        lines.append(f"| … and {len(alerts) - rows:,} more | | `sanity-watchdog report` lists all |")
    return "\n".join(lines)


def _row(alert: Alert) -> str:
    evidence = measured(pair for pair in alert.evidence if pair[0] != "traceback")
    problem = [f"**{alert.severity.name} {escaped(alert.code)} {escaped(alert.name)}**", escaped(alert.message)]
    where = [escaped(named(alert.subjects), 480), place(alert), escaped(alert.where)]
    remedy = [
        escaped(alert.hint, 400),
        "silence: " + escaped(silencer(alert)),
        f"`sanity-watchdog explain {alert.code}`",
    ]
    cells = [[*problem, escaped(evidence, 400)], where, remedy]
    return "| " + " | ".join("<br>".join(part for part in cell if part) for cell in cells) + " |"


def so_far(batch: Batch, alerts: Sequence[Alert]) -> str:
    """The state of a run that goes on, with all its alerts until now."""
    heading = f"### So far: {batch.verdict.upper()}"
    return "\n\n".join([f"{heading} · {tally(alerts)}", *_body(batch.vitals, alerts)])


def closing(summary: Summary) -> str:
    """The end of a run: verdict, vital signs, alerts, what was not looked at."""
    checks = escaped(checks_line(summary).removeprefix("watchdog: "), 2000)
    return "\n\n".join([*_ending(summary), checks])


def _ending(summary: Summary) -> list[str]:
    counts = tally(summary.alerts)
    parts = [f"### {summary.verdict.upper()}" + (f" · {counts}" if counts else "")]
    if summary.stopped_by:
        parts.append(f"stopped by {escaped(summary.stopped_by)}")
    if summary.raised:
        parts.append(f"the run raised {escaped(summary.raised)} at step {summary.step:,}")
    if summary.broken:
        parts.append("broke: " + escaped(named(summary.broken)))
    return [*parts, *_body(summary.vitals, summary.alerts)]


def _body(vitals: Mapping[str, str], alerts: Sequence[Alert]) -> list[str]:
    return [part for part in (escaped(vitals_line(vitals), 600), table(alerts) if alerts else "") if part]


def report(loaded: Loaded) -> str:
    """All runs, those with alerts first in full, the quiet ones as a list."""
    loud = [run for run in loaded.runs if run.summary.alerts or run.verdict != "pass" or run.problems]
    quiet = [run for run in loaded.runs if run not in loud]
    parts = ["# Training runs under sanity-watchdog", *(_section(run) for run in loud)]
    if quiet:
        parts.append(f"## Passed: {len(quiet):,}")
        parts.append("\n".join(f"- {escaped(r.name)}: {escaped(vitals_line(r.summary.vitals), 600)}" for r in quiet))
    if loaded.problems:
        parts.append("## Unreadable\n\n" + "\n".join(f"- {escaped(problem)}" for problem in loaded.problems))
    return "\n\n".join(parts) + "\n"


def _section(run: WatchedRun) -> str:
    parts = [f"## {escaped(run.name)}"]
    if run.finished:
        parts.append(closing(run.summary))
    else:
        parts += [*_ending(run.summary), f"The run did not end: its record stops at step {run.summary.step}."]
    parts += [f"Unreadable: {escaped(problem)}" for problem in run.problems]
    return "\n\n".join(parts)
