"""Finds records on disk and makes runs of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..alerts import Alert, Severity, printable
from ..records import Record, alert_from_dict, read, summary_from_record
from ..summary import Summary
from .ranks import joined
from .run import WatchedRun

PATTERN = "watchdog"


@dataclass(frozen=True)
class Loaded:
    """Everything found under some paths.

    Attributes:
        runs: in the order of their paths.
        problems: what could not be read at all, one line each.
    """

    runs: tuple[WatchedRun, ...] = ()
    problems: tuple[str, ...] = ()

    def exit_code(self, threshold: Severity | None) -> int:
        """1 where an alert is at or above ``threshold``, else 2 where a run is unfinished or unreadable, else 0."""
        if any(run.failing(threshold) for run in self.runs):
            return 1
        doubtful = any(run.unfinished or run.problems for run in self.runs)
        return 2 if doubtful or self.problems or not self.runs else 0


def load(paths: Iterable[Path], progress: Callable[[int, int], None] = lambda done, total: None) -> Loaded:
    """Read every record under ``paths`` (files, or folders to search). Never raises for what it finds there.

    Records of other ranks (``watchdog.rank1.jsonl``) belong to the run of rank zero's beside them.
    """
    problems: list[str] = []
    files: list[Path] = []
    for path in paths:
        found = list(_find(path, problems))
        if not found and path.is_dir() and not any(p.startswith(f"{path}") for p in problems):
            problems.append(f"{path}: no watchdog.jsonl in this folder: was a run watched, and its record put there?")
        files += found
    files = list(dict.fromkeys(files))
    runs: dict[Path, list[WatchedRun]] = {}
    for done, file in enumerate(files, 1):
        progress(done, len(files))
        runs[file] = _runs(file, problems)
    return Loaded(tuple(joined(runs.items())), tuple(problems))


def _find(path: Path, problems: list[str]) -> Iterator[Path]:
    try:
        folder = path.is_dir()
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return
    if not folder:
        yield path
        return

    def refused(error: OSError) -> None:
        problems.append(f"{error.filename}: {error.strerror}")

    for root, folders, names in os.walk(path, onerror=refused):
        folders.sort(key=_natural)
        for name in sorted(names, key=_natural):
            if PATTERN in name and name.endswith(".jsonl"):
                yield Path(root, name)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts ``version_2`` before ``version_10``."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for char in name + "\0":
        if char in "0123456789":
            digits += char
            continue
        if digits:
            parts.append((int(digits[:18]), ""))
            digits = ""
        parts.append((-1, char))
    return tuple(parts)


def _runs(path: Path, problems: list[str]) -> list[WatchedRun]:
    try:
        lines = read(path)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return []
    if not lines.records:
        if lines.torn and not lines.problems:
            why = "no whole record in it"
        elif lines.problems:
            why = lines.problems[-1] if "format" in lines.problems[-1] else "not a watchdog record"
        else:
            why = "empty"
        problems.append(f"{path}: {why}")
        return []
    fits = _fits(lines.records)
    notes = list(lines.problems)
    runs = []
    for number, records in enumerate(fits, 1):
        name = f"{path}" if len(fits) == 1 else f"{path} (fit {number} of {len(fits)})"
        last = number == len(fits)
        runs.append(_run(name, records, tuple(notes) if last else ()))
    return runs


def _fits(records: Sequence[Record]) -> list[list[Record]]:
    fits: list[list[Record]] = []
    for record in records:
        if record["type"] == "run" or not fits:
            fits.append([])
        fits[-1].append(record)
    return fits


def _run(name: str, records: Sequence[Record], notes: tuple[str, ...]) -> WatchedRun:
    problems = list(notes)
    info: Mapping[str, Any] = {}
    seen: dict[tuple[str, str], Alert] = {}
    step, ended = 0, 0.0
    for record in records:
        if isinstance(time := record.get("time"), int | float):
            ended = float(time)
        try:
            if record["type"] == "run":
                info = dict(record["run"])
            elif record["type"] == "alert":
                alert = alert_from_dict(record["alert"])
                seen[alert.key] = alert
                step = max(step, alert.last_step)
            elif record["type"] == "scalars":
                step = max(step, int(record["step"]))
            elif record["type"] == "summary":
                return WatchedRun(name, summary_from_record(record), True, info, tuple(problems), ended)
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"a record of type {printable(record['type'])} is malformed: {printable(str(error))}")
    alerts = tuple(sorted(seen.values(), key=lambda a: (-a.severity, a.step, a.code)))
    verdict = "fail" if any(a.severity is Severity.ERROR for a in alerts) else "incomplete"
    return WatchedRun(name, Summary(verdict, alerts, step=step), False, info, tuple(problems), ended)
