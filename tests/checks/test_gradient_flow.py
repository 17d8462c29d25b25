from dataclasses import replace
from typing import Any

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.gradient_flow import clipped_too_early, discarded_gradients, uncleared_gradients
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.gradients import ClipCalls, Discarded, Uncleared

KEPT = Uncleared(optimizer=0, kind="SGD", steps=0, of=6, parameters=("net.0.weight", "net.0.bias"))
USED = Discarded(optimizer=0, kind="Adam", kept=1.0, parameters=("net.0.weight",))
CLIPS = ClipCalls(where="train.py:31", times=6, early=6)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (uncleared_gradients, replace(KEPT, steps=4)),
    (discarded_gradients, replace(USED, absent=4)),
    (discarded_gradients, replace(USED, absent=4, early=True)),
    (discarded_gradients, replace(USED, absent=4, elsewhere=True)),
    (discarded_gradients, replace(USED, zeroed=5)),
    (discarded_gradients, replace(USED, wasted=4, where="train.py:31")),
    (discarded_gradients, replace(USED, wasted=4, early=True, where="train.py:31")),
    (discarded_gradients, replace(USED, cut=4, kept=0.0)),
    (discarded_gradients, replace(USED, cut=4, kept=2e-9, clipped=True)),
    (discarded_gradients, replace(USED, cut=4, kept=2e-9)),
    (clipped_too_early, CLIPS),
    (clipped_too_early, replace(CLIPS, none=6)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (uncleared_gradients, KEPT),
    (uncleared_gradients, replace(KEPT, steps=3)),
    (discarded_gradients, USED),
    (discarded_gradients, replace(USED, absent=3, zeroed=3, cut=3, wasted=3)),
    (discarded_gradients, replace(USED, absent=3, early=True, elsewhere=True)),
    (discarded_gradients, replace(USED, kept=1e-9)),
    (clipped_too_early, replace(CLIPS, early=5)),
    (clipped_too_early, replace(CLIPS, times=2, early=2)),
    (clipped_too_early, replace(CLIPS, where="", times=0, early=0)),
]


def test_clipped_to_next_to_nothing_is_a_warning_nothing_an_error() -> None:
    severities = []
    for kept in (2e-9, 0.0):
        (found,) = discarded_gradients(replace(USED, cut=4, kept=kept))
        assert isinstance(found, Alert)
        severities.append(found.severity)
    assert severities == [Severity.WARNING, Severity.ERROR]
