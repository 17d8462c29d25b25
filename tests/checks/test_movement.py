import math
from dataclasses import replace

import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.movement import barely_moving, decaying_away, overshooting
from sanity_watchdog.evidence.movement import Movement, Pace, Still, Stride
from sanity_watchdog.evidence.parameters import Parameters

from .test_parameters import state, trace

ATTEMPTS = (0, 1, 2, 3, 5, 8)


def pace(
    *ratios: float, lr: float = 1e-3, matrices: int = 3, counted: int = 6, searching: bool = False, growth: float = 1.0
) -> Pace:
    early = tuple(
        Stride(a, lr, r, matrices, growth ** (i / 5)) for i, (a, r) in enumerate(zip(ATTEMPTS, ratios, strict=False))
    )
    top = max(early, key=lambda s: s.ratio)
    return Pace(0, "AdamW", searching, early, top, counted, early[-5:], lr)


def scheduled(*steps: tuple[int, float, float]) -> Pace:
    """Samples ``(attempt, lr, ratio)``."""
    strides = tuple(Stride(attempt, lr, ratio, 3) for attempt, lr, ratio in steps)
    fastest = max(s.lr for s in strides)
    return Pace(0, "AdamW", False, strides[:6], max(strides, key=lambda s: s.ratio), 6, strides[-5:], fastest)


def seen(*paces: Pace, **fields: object) -> Movement:
    return Movement(step=8, paces=paces, elements=1000, **fields)  # type: ignore[arg-type]


HEALTHY = pace(2e-3, 1e-3, 1e-3, 1e-3, 9e-4, 8e-4)
SLOW = pace(*[2e-9] * 6, lr=1e-9)
FAINT = pace(*[9e-7] * 6, lr=3e-6)
FAST = pace(4.8, 0.68, 0.34, 0.22, 0.12, 0.065, lr=0.5, growth=17.0)
WARMING = scheduled(*((a, a * 1e-9, a * 7e-9) for a in (1, 2, 3, 5, 8)))
FALLEN = scheduled((0, 1e-3, 2e-3), *((a, 1e-8, 7e-8) for a in (8, 13, 21, 34, 55)))
CONVERGED = scheduled((0, 1e-1, 2e-3), *((a, 1e-1, 7e-8) for a in (8, 13, 21, 34, 55)))
RMSPROP = pace(1.8, 0.57, 0.5, 0.2, 0.17, 0.14, lr=0.01, growth=2.63)


def shrunk(*kept: float) -> Parameters:
    traces = [trace(f"net.{i}.weight", now=state(800, rms=0.06 * k)) for i, k in enumerate(kept)]
    return Parameters(step=800, attempt=800, traces=tuple(traces))


FIRING = [
    (barely_moving, seen(SLOW)),
    (barely_moving, seen(HEALTHY, SLOW)),
    (barely_moving, seen(HEALTHY, still=(Still("net.0.weight", 600, True, 6), Still("net.2.weight", 100, True, 5)))),
    (barely_moving, seen(HEALTHY, still=(Still("net.0.weight", 60, True, 6),))),
    (barely_moving, seen(WARMING, planned=10)),
    (barely_moving, seen(FALLEN, planned=300)),
    (barely_moving, seen(FAINT, foreseen=96)),
    (barely_moving, seen(FAINT, foreseen=1000)),
    (overshooting, seen(FAST)),
    (overshooting, seen(HEALTHY, FAST)),
    (decaying_away, shrunk(0.01, 0.001, 0.015)),
    (decaying_away, replace(shrunk(0.01, 0.001, 0.015), decay=1e-5)),
]
QUIET = [
    (barely_moving, seen(HEALTHY)),
    (barely_moving, seen(pace(*[7e-6] * 6, lr=1e-6))),
    (barely_moving, seen(pace(*[2e-9] * 4, counted=4))),
    (barely_moving, seen(HEALTHY, still=(Still("net.0.bias", 600, False, 9),))),
    (barely_moving, seen(HEALTHY, still=(Still("net.0.weight", 600, True, 4),))),
    (barely_moving, seen(HEALTHY, still=(Still("net.0.weight", 600, True, 9),), half=True)),
    (barely_moving, seen(pace(*[math.nan] * 6))),
    (barely_moving, seen(WARMING, planned=10_000)),
    (barely_moving, seen(WARMING)),
    (barely_moving, seen(FALLEN, planned=12)),
    (barely_moving, seen(FALLEN)),
    (barely_moving, seen(CONVERGED, planned=300)),
    (barely_moving, seen(FAINT, foreseen=20)),
    (barely_moving, seen(FAINT, foreseen=2000)),
    (barely_moving, seen(FAINT)),
    (barely_moving, seen(pace(*[7e-6] * 6, lr=1e-6), foreseen=60)),
    (barely_moving, seen(scheduled(*((a, a * 1e-9, a * 1e-7) for a in (1, 2, 3, 5, 8))), planned=60, foreseen=60)),
    (overshooting, seen(HEALTHY)),
    (overshooting, seen(RMSPROP)),
    (overshooting, seen(pace(math.nan, 0.01, 0.01, 0.01))),
    (overshooting, seen(pace(5.0, 0.8, 0.5, 0.4, 0.3, 0.2, matrices=1, growth=9.0))),
    (overshooting, seen(pace(5.0, 0.8, 0.5, 0.4, 0.3, 0.2, searching=True, growth=9.0))),
    (overshooting, seen(pace(0.2, 0.2, 0.2, 0.2, 0.2, 0.2, growth=9.0))),
    (overshooting, seen(pace(5.0, 0.8))),
    (decaying_away, shrunk(0.01, 0.1, 0.5)),
    (decaying_away, shrunk(0.01)),
    (decaying_away, shrunk(1.0, 0.9, 1.1)),
]


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        pytest.param(2, Severity.WARNING, id="fires-large-part-still"),
        pytest.param(3, Severity.INFO, id="fires-small-part-still-is-a-note"),
    ],
)
def test_severity_of_what_stands_still(number: int, severity: Severity) -> None:
    check, evidence = FIRING[number]
    (alert,) = judge(evidence, (check,)).alerts
    assert alert.severity is severity
    assert alert.subjects[0] == "net.0.weight"
