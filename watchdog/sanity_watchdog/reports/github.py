"""Runs as GitHub annotations, and the job summary beside them."""

import os
import re
from collections.abc import Mapping
from itertools import chain, zip_longest
from pathlib import Path

from ..alerts import Alert, Severity, named, place, printable
from . import markdown
from .closing import verdict_line
from .load import Loaded

PER_KIND = 10
"""GitHub shows so many annotations of each kind per step and drops the rest without a word."""
SUMMARY_BYTES = 1_000_000
"""GitHub refuses a step's summary above 1 MiB."""
KINDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_LINE = re.compile(r"(?P<file>.+):(?P<line>[1-9]\d*)")


def report(loaded: Loaded, environ: Mapping[str, str] = os.environ) -> str:
    """Annotations, errors first, one for each line that a code is about, with its worst alert; then one line per run.

    Further lines of one code come after the first ones of all.
    """
    found: dict[str, dict[str, tuple[Alert, list[str]]]] = {}
    for run in loaded.runs:
        for alert in run.summary.alerts:
            places = found.setdefault(alert.code, {})
            worst, runs = places.setdefault(alert.where, (alert, []))
            places[alert.where] = (alert if alert.severity > worst.severity else worst, [*runs, run.name])
    in_turn = chain.from_iterable(zip_longest(*(places.values() for places in found.values())))
    ranked = sorted((f for f in in_turn if f is not None), key=lambda f: -f[0].severity)
    lines = []
    for severity in sorted(KINDS, reverse=True):
        of_kind = [(a, runs) for a, runs in ranked if a.severity is severity]
        shown = of_kind[: PER_KIND - 1] if len(of_kind) > PER_KIND else of_kind
        lines += [_annotation(alert, list(dict.fromkeys(runs)), environ) for alert, runs in shown]
        if rest := of_kind[len(shown) :]:
            codes = ", ".join(dict.fromkeys(alert.code for alert, _ in rest))
            lines.append(
                _command(KINDS[severity], {"title": f"{len(rest)} more"}, f"also {codes}: see the job summary")
            )
    broken = [run for run in loaded.runs if run.unfinished or run.problems]
    problems = [*loaded.problems, *(f"{r.name}: {'; '.join(r.problems) or r.unfinished}" for r in broken)]
    lines += [_command("warning", {"title": "incomplete"}, printable(p, 400)) for p in problems[:PER_KIND]]
    lines += [
        f"{printable(run.name, 400)}: {verdict_line(run.summary).removeprefix('watchdog: ')}" for run in loaded.runs
    ]
    return "\n".join(lines) + "\n"


def write_summary(loaded: Loaded, environ: Mapping[str, str] = os.environ) -> None:
    """Append the Markdown report to the job summary, where GitHub asks for one.

    Raises:
        OSError: if the summary's file cannot be written.
    """
    path = environ.get("GITHUB_STEP_SUMMARY")
    if path:
        text = markdown.report(loaded).encode()
        if len(text) > SUMMARY_BYTES:
            text = text[:SUMMARY_BYTES].rpartition(b"\n")[0] + "\n\n… cut: GitHub takes no more\n".encode()
        with open(path, "ab") as file:
            file.write(text)


def _annotation(alert: Alert, runs: list[str], environ: Mapping[str, str]) -> str:
    properties = _file(alert.where, environ) | {"title": f"{alert.code} {alert.name}"}
    lines = [printable(alert.message, 240)]
    if alert.subjects:
        lines.append(named(alert.subjects))
    more = f" and {len(runs) - 1:,} more" if len(runs) > 1 else ""
    lines.append(f"{place(alert)} of {printable(runs[0], 400)}{more}")
    if alert.hint:
        lines.append(f"fix: {printable(alert.hint, 400)}")
    lines.append(f"explain: sanity-watchdog explain {alert.code}")
    return _command(KINDS[alert.severity], properties, "\n".join(lines))


def _file(where: str, environ: Mapping[str, str]) -> dict[str, str]:
    match = _LINE.fullmatch(where)
    if match is None:
        return {}
    root = Path(environ.get("GITHUB_WORKSPACE") or Path.cwd())
    path = Path.cwd() / match["file"]
    if not path.is_relative_to(root):
        return {}
    return {"file": path.relative_to(root).as_posix(), "line": match["line"]}


def _command(kind: str, properties: Mapping[str, str], message: str) -> str:
    text = ",".join(f"{name}={_property(printable(value, 400))}" for name, value in properties.items())
    return f"::{kind} {text}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
