"""Records of the other ranks of a run, taken as parts of it."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..alerts import Alert, Severity
from ..summary import Summary
from .run import WatchedRun

OF_A_RANK = re.compile(r"\.rank[1-9][0-9]*(?=\.jsonl$)")


def main_record(path: Path) -> Path | None:
    """The record of rank zero beside that of another rank; None for any other path."""
    name, found = OF_A_RANK.subn("", path.name)
    return path.with_name(name) if found else None


def joined(files: Iterable[tuple[Path, list[WatchedRun]]]) -> list[WatchedRun]:
    """All runs, those of other ranks inside rank zero's run of the same time; alone where rank zero left nothing."""
    found = dict(files)
    for path in [p for p in found if (main := main_record(p)) is not None and found.get(main)]:
        fits = found[path.with_name(OF_A_RANK.sub("", path.name))]
        for part in found.pop(path):
            nearest = min(range(len(fits)), key=lambda i: abs(fits[i].started - part.started))
            fits[nearest] = with_rank(fits[nearest], part)
    return [run for runs in found.values() for run in runs]


def with_rank(run: WatchedRun, part: WatchedRun) -> WatchedRun:
    """``run`` with what it lacks of another rank's record: alerts that never reached rank zero, and problems.

    Rank zero has merged what reached it, so an alert that both know is left as it has it.
    """
    told = (*run.summary.alerts, *run.summary.explained, *(i.alert for i in run.summary.ignored))
    known = {alert.key for alert in told}
    more = tuple(a for a in part.summary.alerts if a.key not in known and not a.code.startswith("WD002"))
    problems = tuple(f"{Path(part.name).name}: {text}" for text in part.problems)
    alerts = tuple(sorted((*run.summary.alerts, *more), key=lambda a: -a.severity))
    summary = replace(run.summary, alerts=alerts, verdict=_verdict(run.summary, more))
    return replace(run, summary=summary, problems=(*run.problems, *problems))


def _verdict(summary: Summary, more: Iterable[Alert]) -> str:
    worst = max((a.severity for a in more), default=Severity.INFO)
    if worst is Severity.ERROR:
        return "fail"
    return "warn" if worst is Severity.WARNING and summary.verdict == "pass" else summary.verdict
