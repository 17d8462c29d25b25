import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.optimizer_state import discarded_state
from sanity_watchdog.evidence.loop import StateLosses


def seen(made: int = 0, emptied: int = 0, steps: int = 40, **fields: bool) -> StateLosses:
    return StateLosses(
        step=steps, optimizer="Adam", made=made, emptied=emptied, attempts=steps, batches=steps, **fields
    )


FIRING = [
    (discarded_state, seen(made=3)),
    (discarded_state, seen(emptied=12)),
    (discarded_state, seen(made=40, own=False, over=True)),
    (discarded_state, seen(emptied=3, steps=9000)),
]
QUIET = [
    (discarded_state, seen()),
    (discarded_state, seen(made=1, emptied=1)),
    (discarded_state, seen(made=10, steps=10, own=False, over=True)),
    (discarded_state, seen(made=40, own=False)),
]


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        pytest.param(1, Severity.WARNING, id="fires-again-and-again"),
        pytest.param(3, Severity.INFO, id="fires-rare-restarts-are-a-note"),
    ],
)
def test_severity_of_lost_states(number: int, severity: Severity) -> None:
    check, evidence = FIRING[number]
    (alert,) = judge(evidence, (check,)).alerts
    assert alert.severity is severity
