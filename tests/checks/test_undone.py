import math

import pytest

from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.undone import undone_steps
from sanity_watchdog.evidence.movement import Boundary, Undone


def seen(*steps: tuple[float, ...], epochs: tuple[tuple[float, ...], ...] = ()) -> Undone:
    return Undone(step=40, steps=steps, epochs=tuple(Boundary(*e) for e in epochs))


FIRING = [
    (undone_steps, seen((0.0, 0.0, 0.0))),
    (undone_steps, seen((1.0, 1.0, 1.0), (math.nan, 1e-3, 1e-3))),
    (undone_steps, seen((1.0, 1.0, 1.0), epochs=((0.0, 0.6), (0.0, 0.6)))),
    (undone_steps, seen((1.0, 1.0, 1.0), epochs=((1.0, 1.0, 0.3), (1.0, 1.0, math.nan), (1.0, 1.0, 0.4)))),
    (undone_steps, seen((1.0, 1.0, 1.0), epochs=((3.1, 0.05), (3.3, -0.1), (3.0, 0.12)))),
]
QUIET = [
    (undone_steps, seen((1.0, 1.0, 1.0), epochs=((1.0, 1.0), (1.0, 1.0)))),
    (undone_steps, seen((0.0, 0.3, 0.0))),
    (undone_steps, seen((0.0,))),
    (undone_steps, seen()),
    (undone_steps, seen((math.nan, math.nan, 0.0))),
    (undone_steps, seen(epochs=((0.0, 0.6),))),
    (undone_steps, seen(epochs=((1.0, 1.0), (0.0, 0.6), (1.0, 1.0)))),
    (undone_steps, seen(epochs=((math.nan, math.nan), (math.nan, math.nan)))),
    (undone_steps, seen(epochs=((0.5, 0.98), (0.5, 0.98)))),
    (undone_steps, seen(epochs=((0.5, 0.98, 1.0), (0.5, 0.98, 1.0)))),
    (undone_steps, seen(epochs=((1.0, 1.0, 1.0), (1.0, 1.0, 0.2), (1.0, 1.0, 0.2)))),
    (undone_steps, seen(epochs=((1.0, 1.0, 0.2), (1.0, 1.0, math.nan)))),
]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(1, "0.10% of what a step changes", id="worst-optimizer"),
        pytest.param(3, "validation leaves 40%", id="averaged-in-validation"),
        pytest.param(4, "likeness to the last one's 0.12", id="initialised-anew"),
    ],
)
def test_the_message_has_the_largest_share(number: int, words: str) -> None:
    check, evidence = FIRING[number]
    (alert,) = judge(evidence, (check,)).alerts
    assert words in alert.message
