import math
from dataclasses import replace

import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.parameters import (
    identical_units,
    non_finite_parameter,
    stuck_at_zero,
    zeroed_parameter,
)
from sanity_watchdog.evidence.parameters import Parameters, State, Trace


def state(attempt=0, rms=0.06, zeros=0.0, shape=(64, 32), smallest=None, largest=None):
    n = math.prod(shape)
    return State(
        attempt=attempt,
        largest=3 * rms if largest is None else largest,
        norm=rms * math.sqrt(n),
        zeros=zeros,
        smallest=rms / 200 if smallest is None else smallest,
    )


def trace(name="net.0.weight", shape=(64, 32), start=None, now=None, **changes):
    start = state(shape=shape) if start is None else start
    now = state(8, shape=shape) if now is None else now
    fields = {"rise": (start, now), "fall": (start, now), **changes}
    return Trace(
        name=name,
        shape=shape,
        trainable=changes.pop("trainable", True),
        start=start,
        now=now,
        **{k: v for k, v in fields.items() if k != "trainable"},
    )


def seen(*traces, attempt=8, stage="train"):
    return Parameters(step=attempt, attempt=attempt, traces=traces, stage=stage)


HEALTHY = trace("net.2.weight")
ZERO = state(8, rms=0.0, zeros=1.0, smallest=math.nan)
ALWAYS_ZERO = {"start": replace(ZERO, attempt=0), "now": ZERO}
HALF = state(5, rms=0.042, zeros=0.5, smallest=0.0003)
PRUNED = state(5, rms=0.055, zeros=0.5, smallest=0.04)
NAN = state(8, largest=math.nan)
TENTH = state(5, rms=0.002)
CLIPPED = state(5, rms=0.0055, largest=0.006, smallest=0.0001)
BARELY = state(5, rms=0.0065, largest=0.006, smallest=0.0001, shape=(4, 4))
STEPPED = state(5, rms=0.001, largest=0.001, smallest=0.001)

DOWN = trace("lora.a", (4, 32), **ALWAYS_ZERO, idle=6)
UP = trace("lora.b", (64, 4), **ALWAYS_ZERO, idle=5)
LEARNING = trace("net.2.bias", (10,), state(shape=(10,)), state(8, rms=0.07, shape=(10,)))
RESTING = trace("net.2.bias", (10,), state(shape=(10,)), state(8, shape=(10,)))

FIRING = [
    (zeroed_parameter, seen(trace(now=ZERO), HEALTHY)),
    (zeroed_parameter, seen(trace(now=ZERO), trace("net.0.bias", (64,), state(shape=(64,)), ZERO))),
    (zeroed_parameter, seen(trace("norm.weight", (64,), state(shape=(64,)), ZERO))),
    (zeroed_parameter, seen(trace("scale", (1,), state(shape=(1,)), ZERO))),
    (zeroed_parameter, seen(trace(now=HALF), HEALTHY)),
    (zeroed_parameter, seen(trace(now=TENTH), HEALTHY)),
    (zeroed_parameter, seen(trace(now=STEPPED), trace("net.2.weight", now=STEPPED))),
    (zeroed_parameter, seen(trace(now=TENTH), trace("net.2.weight", now=TENTH))),
    (zeroed_parameter, seen(trace(now=ZERO, pruned=True), HEALTHY)),
    (stuck_at_zero, seen(trace(**ALWAYS_ZERO, idle=5), trace("net.2.weight", (10, 64)), LEARNING)),
    (stuck_at_zero, seen(DOWN, UP)),
    (stuck_at_zero, seen(UP, trace("lora.gate", (1,), **ALWAYS_ZERO, idle=5))),
    (stuck_at_zero, seen(replace(DOWN, trainable=False), UP)),
    (non_finite_parameter, seen(trace(now=NAN), HEALTHY)),
    (
        non_finite_parameter,
        seen(trace(start=NAN, now=NAN), trace("net.2.weight", start=NAN, now=NAN), attempt=0, stage="start"),
    ),
    (non_finite_parameter, seen(trace(now=state(8, largest=math.inf)))),
    (identical_units, seen(trace(identical=2), HEALTHY)),
]
QUIET = [
    (zeroed_parameter, seen(HEALTHY)),
    (zeroed_parameter, seen(trace("lora.b", **ALWAYS_ZERO))),
    (zeroed_parameter, seen(trace("rezero", (1,), replace(ZERO, attempt=0), state(8, shape=(1,))))),
    (zeroed_parameter, seen(trace(now=HALF, masked=True), HEALTHY)),
    (zeroed_parameter, seen(trace(now=HALF, pruned=True), HEALTHY)),
    (zeroed_parameter, seen(trace("net.0.bias", (64,), state(shape=(64,)), ZERO, pruned=True), HEALTHY)),
    (zeroed_parameter, seen(trace(now=PRUNED), HEALTHY)),
    (zeroed_parameter, seen(trace(start=state(zeros=0.4), now=state(8, zeros=0.6)), HEALTHY)),
    (zeroed_parameter, seen(trace(now=state(8, zeros=0.03)), HEALTHY)),
    (zeroed_parameter, seen(trace("net.0.bias", (64,), state(shape=(64,)), replace(ZERO, attempt=0)), attempt=0)),
    (zeroed_parameter, seen(trace(start=replace(ZERO, attempt=0), now=HALF, rise=(state(3), HALF)), HEALTHY)),
    (zeroed_parameter, seen(trace(now=CLIPPED), trace("net.2.weight", now=CLIPPED))),
    (zeroed_parameter, seen(trace(now=CLIPPED), trace("net.2.weight", (4, 4), state(shape=(4, 4)), BARELY))),
    (zeroed_parameter, seen(trace(now=replace(TENTH, attempt=4000)), HEALTHY)),
    (stuck_at_zero, seen(replace(DOWN, idle=4), UP)),
    (stuck_at_zero, seen(UP, replace(UP, name="lora.1.b"), trace("lora.a", (4, 32)))),
    (stuck_at_zero, seen(trace(**ALWAYS_ZERO, idle=9), trace("net.2.weight", (10, 64)), RESTING)),
    (
        stuck_at_zero,
        seen(
            trace("a.weight", (32, 32), **ALWAYS_ZERO, idle=9),
            trace("a.bias", (32,), **ALWAYS_ZERO, idle=9),
            trace("b.weight", (4, 32), **ALWAYS_ZERO, idle=9),
            trace("b.bias", (4,), **ALWAYS_ZERO, idle=9),
        ),
    ),
    (stuck_at_zero, seen(trace("net.0.bias", (64,), **ALWAYS_ZERO, idle=9), HEALTHY)),
    (stuck_at_zero, seen(trace(**ALWAYS_ZERO, idle=9, trainable=False), HEALTHY)),
    (non_finite_parameter, seen(HEALTHY)),
    (non_finite_parameter, seen(trace(start=NAN, now=NAN))),
    (non_finite_parameter, seen(trace("mask", now=state(8, largest=math.inf), trainable=False))),
    (identical_units, seen(trace(identical=1), HEALTHY)),
    (identical_units, seen(HEALTHY)),
]


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        pytest.param(0, Severity.ERROR, id="fires-matrix-is-an-error"),
        pytest.param(1, Severity.ERROR, id="fires-worst-decides"),
        pytest.param(2, Severity.WARNING, id="fires-vector-is-a-warning"),
        pytest.param(3, Severity.INFO, id="fires-scalar-is-a-note"),
        pytest.param(4, Severity.WARNING, id="fires-half-is-a-warning"),
    ],
)
def test_severity_of_a_zeroed_parameter(number: int, severity: Severity) -> None:
    check, evidence = FIRING[number]
    (alert,) = judge(evidence, (check,)).alerts
    assert alert.severity is severity
    assert alert.subjects[0] == evidence.traces[0].name


def test_one_clipped_layer_among_others_is_a_fault() -> None:
    assert judge(seen(trace(now=CLIPPED), HEALTHY), (zeroed_parameter,)).alerts
