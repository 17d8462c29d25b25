"""Runs as plain text."""

from collections import Counter

from ..alerts import counted, printable, render
from .closing import checks_line, verdict_line
from .load import Loaded
from .run import WatchedRun


def report(loaded: Loaded) -> str:
    """Every run with its alerts, quiet ones in one line each; the count of verdicts comes last."""
    parts = [_run(run) for run in loaded.runs]
    parts += [f"unreadable: {printable(problem, 400)}" for problem in loaded.problems]
    found = Counter(run.verdict for run in loaded.runs)
    verdicts = ", ".join(f"{found[v]:,} {v}" for v in ("fail", "incomplete", "warn", "pass") if found[v])
    last = counted(len(loaded.runs), "run") + (f": {verdicts}" if verdicts else "")
    if loaded.problems:
        last += f" · {len(loaded.problems):,} unreadable"
    return "\n".join([*parts, last]) + "\n"


def _run(run: WatchedRun) -> str:
    summary = run.summary
    name = printable(run.name, 400)
    closing = verdict_line(summary).removeprefix("watchdog: ")
    if summary.verdict == "pass" and not (summary.alerts or summary.unused_ignores or summary.ignored or run.problems):
        return f"{name}: {closing}"
    lines = [f"{name}: {closing}"]
    lines += map(render, summary.alerts)
    if run.finished:
        lines.append(checks_line(summary).removeprefix("watchdog: "))
    else:
        lines.append(f"the run did not end: its record stops at step {summary.step}")
    lines += [f"{printable(what)} broke:\n{_traceback(text)}" for what, text in summary.broken.items()]
    lines += [f"unreadable: {printable(problem, 400)}" for problem in run.problems]
    return "\n  ".join("\n".join(lines).split("\n")) + "\n"


def _traceback(text: str) -> str:
    return "\n".join("  " + printable(line) for line in text.rstrip().split("\n")[-12:])
