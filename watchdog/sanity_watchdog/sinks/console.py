"""The console report on stderr: each alert once, and two closing lines."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..alerts import Alert, Severity, printable, render
from ..reports.closing import checks_line, verdict_line
from ..summary import Batch, RunInfo, Summary
from .jsonl import JsonLinesSink
from .tensorboard import TensorBoardSink

COLOURS = {
    Severity.ERROR: "31;1",
    Severity.WARNING: "33;1",
    Severity.INFO: "36",
    "fail": "31;1",
    "warn": "33;1",
    "pass": "32;1",
    "incomplete": "35;1",
}


STAGES = {"train": "in training", "validation": "in validation", "start": "at the start"}


class ConsoleSink:
    """Prints through :attr:`RunInfo.echo`. Colours only on a terminal and without ``NO_COLOR``."""

    def __init__(self) -> None:
        self._info = RunInfo()
        self._printed: dict[tuple[str, str], tuple[Severity, int]] = {}
        self._standing: set[tuple[str, str]] = set()
        self._said: set[tuple[str, Severity, str, tuple[str, ...]]] = set()

    def open(self, info: RunInfo) -> None:
        self._info = info

    def write(self, batch: Batch) -> None:
        for alert in batch.alerts:
            severity, count = self._printed.get(alert.key, (0, 0))
            if alert.severity > severity:
                self._info.echo(self._new(alert))
            elif alert.count >= 10 * count:
                self._info.echo(
                    f"watchdog: {alert.code} {alert.name}: seen {alert.count:,}×, last at step {alert.last_step}"
                )
            else:
                continue
            self._printed[alert.key] = alert.severity, alert.count
            self._standing.add(alert.key)
        for alert in batch.cleared:
            if alert.key not in self._standing:
                continue
            self._standing.discard(alert.key)
            self._info.echo(f"watchdog: {alert.code} {alert.name}: no longer so at step {batch.step}")

    def close(self, summary: Summary) -> None:
        verdict = f"watchdog: {summary.verdict}."
        shown = f"watchdog: {_painted(summary.verdict, COLOURS[summary.verdict])}."
        shown += f" fit {self._info.fit} ·" if self._info.fit > 1 else ""
        self._info.echo(verdict_line(summary).replace(verdict, shown, 1))
        self._info.echo(checks_line(summary, self._whereabouts(summary.unwritten)))

    def _new(self, alert: Alert) -> str:
        if alert.severity is Severity.INFO:
            return f"watchdog: note {alert.code} {alert.name}: {printable(alert.message)}"
        said = alert.code, alert.severity, alert.message, alert.subjects
        if said in self._said:
            where = f" at {printable(alert.where)}" if alert.where else ""
            return (
                f"watchdog: {alert.code} {alert.name}: the same {STAGES.get(alert.stage, '')}, step {alert.step}{where}"
            )
        self._said.add(said)
        name = alert.severity.name
        return render(alert).replace(name, _painted(name, COLOURS[alert.severity]), 1)

    def _whereabouts(self, unwritten: Sequence[str]) -> str:
        places = []
        if self._info.directory is not None and self._info.rank == 0 and TensorBoardSink.__name__ not in unwritten:
            places.append("TensorBoard's Watchdog tab")
        if self._info.record is not None and JsonLinesSink.__name__ not in unwritten:
            places.append(_relative(self._info.record))
        return "alerts in " + " and ".join(places) if places else ""


def _relative(path: str) -> str:
    """``path`` as seen from the working directory, where it lies inside it."""
    try:
        return printable(str(Path(path).absolute().relative_to(Path.cwd())))
    except (OSError, ValueError):
        return printable(path)


def _painted(text: str, colour: str) -> str:
    if os.environ.get("NO_COLOR") or not getattr(sys.stderr, "isatty", bool)():
        return text
    return f"\033[{colour}m{text}\033[0m"
