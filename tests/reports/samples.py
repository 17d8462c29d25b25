"""Runs with a little of everything, as written by the sink."""

from dataclasses import replace
from pathlib import Path

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.evidence.readings import Scalars
from sanity_watchdog.sinks import JsonLinesSink
from sanity_watchdog.summary import Batch, Ignored, RunInfo, Summary

ERROR = Alert(
    "WD301",
    "zeroed-parameter",
    Severity.ERROR,
    "all 2048 values are exactly zero; at the start they were not",
    step=8,
    hint="look for a mask, an in-place edit or weight decay that reaches this tensor",
    subjects=("net.0.weight",),
    where="train.py:31",
    evidence=(("zeros", 2048), ("share", 1.0), ("before", float("nan"))),
    last_step=13,
    count=3,
)
HOSTILE = Alert(
    "WD123",
    "unscaled-input",
    Severity.WARNING,
    "100% of a|b: <script>alert(1)</script>, `x`\nnext line",
    subjects=("a,b", "_c_", "d::e%0A"),
    hint="divide by 255, or: normalise",
)
NOTE = Alert("WD101", "initial-loss-off", Severity.INFO, "first loss 2.0 is below ln 10 = 2.303")
VITALS = {"runtime": "32-true on cpu", "loss": "first loss 2.312 (ln 10 = 2.303)"}


def write(path: Path, *news: Batch, summary: Summary | None = None) -> Path:
    """Write a run's record; without ``summary`` the run was killed."""
    sink = JsonLinesSink()
    sink.open(RunInfo(record=str(path), directory=str(path.parent), versions={"torch": "2.13"}))
    for batch in news:
        sink.write(batch)
    if summary is not None:
        sink.close(summary)
    return path


def runs(folder: Path) -> None:
    """Four runs: failed, killed, broken, passed; and a file that holds no record."""
    failed = Summary(
        "fail",
        (ERROR, HOSTILE, NOTE),
        ignored=(Ignored(replace(ERROR, code="WD302", name="stuck-at-zero"), "WD302:*.mask", "pruned on purpose"),),
        judged=("WD101", "WD123", "WD301", "WD302", "WD303"),
        skipped={"WD201": "no fp16", "WD202": "no fp16", "WD699": "one process"},
        unused_ignores=("WD5",),
        vitals=VITALS,
        step=40,
        stopped_by='fail_on="error"',
    )
    broken = Summary(
        "incomplete", judged=("WD301",), broken={"check WD102": "Traceback\n  line\nValueError: no"}, step=3
    )
    quiet = Summary("pass", judged=("WD301", "WD303"), skipped={"WD201": "no fp16"}, vitals=VITALS, step=99)
    write(folder / "v1" / "watchdog.jsonl", Batch(8, (ERROR,)), summary=failed)
    write(
        folder / "v2" / "watchdog.jsonl", Batch(4, (HOSTILE,), readings=(Scalars(step=4, values={"first_loss": 2.3}),))
    )
    write(folder / "v3" / "watchdog.jsonl", summary=broken)
    write(folder / "v10" / "watchdog.jsonl", summary=quiet)
    (folder / "v11").mkdir()
    (folder / "v11" / "watchdog.jsonl").write_bytes(bytes(range(256)) * 10)
