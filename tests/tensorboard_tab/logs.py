"""Log folders for the tab's tests, written by the product's own sink."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.readings import Layers, Scalars
from sanity_watchdog.sinks import TensorBoardSink
from sanity_watchdog.summary import Batch, Ignored, RunInfo, Summary

HOSTILE = "<img src=x onerror=alert(1)>|<script>alert(2)</script> **x** \ud800 " + "y" * 10_000
VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "lightning": "2.6.6", "sanity_watchdog": "0.1.0"}
SKIPPED = {"WD201": "no float16", "WD202": "no float16", "WD601": "one process", "WD405": "no target named"}
JUDGED = ("WD101", "WD102", "WD106", "WD301", "WD302", "WD303", "WD311", "WD501", "WD502")
QUIET = {
    "loss": "first loss 2.312 (ln 10 = 2.303)",
    "runtime": "32-true on cpu",
    "parameters": "26,122 parameters, all in the optimizer, all moving",
}
HOT = Alert(
    "WD101",
    "initial-loss-off",
    Severity.ERROR,
    "first loss 9.871, expected 2.303 (ln 10): 7.57 above, limit 4.31",
    hint="net.6.weight is large (rms·√inputs 11.6, usual ≤ 1): initialise it with std 1/√inputs",
    subjects=("cross_entropy",),
    where="train_digits.py:54",
    evidence=(("seen", 9.871), ("expected", 2.3026), ("standard_error", 0.3277), ("classes", 10), ("targets", 64)),
)
ZEROED = Alert(
    "WD301",
    "zeroed-parameter",
    Severity.WARNING,
    "all 4608 values are exactly zero; at the start they were not",
    step=8,
    last_step=890,
    count=17,
    hint="look for a mask, an in-place edit or weight decay that reaches this tensor",
    subjects=("net.2.weight",),
    evidence=(("zeros", 4608), ("numel", 4608), ("dtype", "float32")),
)
NOTE = Alert(
    "WD123", "unscaled-input", Severity.INFO, "inputs reach 255; limit 20", hint="divide by 255", where=HOSTILE
)
HOSTILE_ALERT = replace(
    NOTE, code="WD302", name="stuck-at-zero", message=HOSTILE, hint=HOSTILE, subjects=(HOSTILE,), step=3
)


def names(count: int) -> tuple[str, ...]:
    parts = ("attention.query.weight", "attention.value.weight", "mlp.up.weight", "mlp.down.weight")
    return tuple(f"model.blocks.{i // 4}.{parts[i % 4]}" for i in range(count))


def vectors(count: int, steps: int, seed: int = 0) -> Iterator[tuple[Evidence, ...]]:
    """Gradients that vanish with depth and time, and underflow as they do."""
    draw = random.Random(seed)
    all_names = names(count)
    for t in range(steps):
        log2 = [-6 - 14 * (i / count) * (t / steps) - 2 * draw.random() for i in range(count)]
        lost = [min(1.0, max(0.0, (-14 - x) / 10)) for x in log2]
        lost[count // 2] = math.nan if t < steps // 2 else 0.0
        step = 10 * t
        yield (
            Layers(step=step, quantity="log2_largest_gradient", names=all_names, values=tuple(log2)),
            Layers(step=step, quantity="underflow_share", names=all_names, values=tuple(lost)),
        )


def write(folder: Path, alerts: tuple[Alert, ...], loss: float, summary: Summary | None, vital: str = "") -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder), versions=VERSIONS, settings={"options": {}}))
    vitals = QUIET | {"loss": vital or f"first loss {loss:.3f} (ln 10 = 2.303)"}
    first = Scalars(values={"first_loss": loss, "ln_k": math.log(10), "first_loss_error": 0.05})
    sink.write(Batch(0, verdict="pass", readings=(first,), vitals=vitals))
    for readings in vectors(24, 30):
        sink.write(Batch(readings[0].step, verdict="pass", readings=readings, vitals=vitals))
    if alerts:
        counts = {s.name.lower(): sum(a.severity is s for a in alerts) for s in Severity}
        verdict = "fail" if counts["error"] else "warn"
        sink.write(Batch(300, alerts, verdict=verdict, counts=counts, vitals=vitals))
    if summary is not None:
        sink.close(replace(summary, vitals=vitals))


def bad(folder: Path) -> None:
    alerts = (HOT, ZEROED, HOSTILE_ALERT, NOTE)
    explained = replace(ZEROED, code="WD311", name="not-moving", message="24 parameters do not move")
    ignored = Ignored(replace(NOTE, code="WD502", name="eval-mode"), "WD502:*.backbone", "frozen on purpose")
    ended = Summary("fail", alerts, (explained,), (ignored,), JUDGED, SKIPPED, step=890, batches=891, attempts=891)
    write(folder, alerts, 9.871, replace(ended, unused_ignores=("WD999",)))


def warned(folder: Path) -> None:
    write(folder, (ZEROED,), 2.35, Summary("warn", (ZEROED,), judged=JUDGED, skipped=SKIPPED, step=890, batches=891))


def good(folder: Path) -> None:
    write(folder, (), 2.312, Summary("pass", judged=JUDGED, skipped=SKIPPED, step=890, batches=891, attempts=891))


def broken(folder: Path) -> None:
    trace = "Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: no"
    fault = Alert("WD001", "watchdog-failed", Severity.INFO, "check WD303 raised ValueError: no", subjects=("WD303",))
    fault = replace(fault, evidence=(("traceback", trace),))
    write(folder, (fault,), 2.3, Summary("incomplete", (fault,), broken={"check WD303": trace}, step=9, batches=10))


def going(folder: Path) -> None:
    write(folder, (), math.nan, None, "first loss nan (ln 10 = 2.303)")


def resumed(folder: Path) -> None:
    write(folder, (HOT,), 9.871, Summary("fail", (HOT,), judged=JUDGED, step=300, batches=300))
    write(folder, (), 2.31, Summary("pass", judged=JUDGED, skipped=SKIPPED, step=890, batches=590))


def crowded(folder: Path, alerts: int = 10_000, layers: int = 1_000, steps: int = 300) -> None:
    sink = TensorBoardSink()
    sink.open(RunInfo(directory=str(folder), versions=VERSIONS))
    for readings in vectors(layers, steps):
        sink.write(Batch(readings[0].step, verdict="pass", readings=readings))
    every = names(layers)
    many = tuple(
        replace(
            ZEROED, code=f"WD3{i % 7:02}", where=f"model.py:{i}", subjects=(every[i % layers],), step=i, last_step=i
        )
        for i in range(alerts)
    )
    for start in range(0, alerts, 2500):
        sink.write(Batch(start, many[start : start + 2500], verdict="warn", counts={"warning": start + 2500}))
    sink.close(Summary("warn", many, judged=JUDGED, step=10 * steps, batches=10 * steps))


RUNS: dict[str, Callable[[Path], None]] = {
    "bad": bad,
    "warned": warned,
    "good": good,
    "broken": broken,
    "going": going,
    "resumed": resumed,
}
