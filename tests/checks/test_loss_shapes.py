from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.loss_shapes import broadcast_loss
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.broadcasts import Difference, Spread, batch_meets_batch, broadcast


def pair(a: tuple[int, ...], b: tuple[int, ...], function: str = "mse_loss") -> Difference:
    return Difference(function=function, spread=Spread("train.py:31", a, b))


FIRING: list[tuple[Check[Any], Evidence]] = [
    (broadcast_loss, pair((32, 1), (32,))),
    (broadcast_loss, pair((32,), (32, 1), "l1_loss")),
    (broadcast_loss, pair((32, 1), (32,), "subtraction")),
    (broadcast_loss, pair((16, 1), (16,), "multiplication")),
    (broadcast_loss, pair((40,), (40, 1), "addition")),
    (broadcast_loss, pair((40,), (40, 1), "log_prob")),
    (broadcast_loss, Difference(function="subtraction", spread=Spread("train.py:31", (32, 1), (32,), sure=False))),
    (broadcast_loss, pair((32, 1, 1), (32, 1), "huber_loss")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (broadcast_loss, pair((32,), (32,))),
    (broadcast_loss, pair((32, 1), (32, 1))),
    (broadcast_loss, pair((5, 32), (32,))),
    (broadcast_loss, pair((32, 5), (32, 1))),
    (broadcast_loss, pair((32, 8, 1), (32, 1, 8))),
    (broadcast_loss, pair((1, 1), (1,))),
    (broadcast_loss, pair((), (32,))),
    (broadcast_loss, pair((32, 3), (64, 3))),
]


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ((32, 1), (32,), (32, 32)),
        ((), (3,), (3,)),
        ((4, 1), (4, 5), (4, 5)),
        ((3,), (4,), None),
        ((0, 1), (1,), (0, 1)),
    ],
)
def test_broadcast(a: tuple[int, ...], b: tuple[int, ...], both: tuple[int, ...] | None) -> None:
    assert broadcast(a, b) == broadcast(b, a) == both


def test_a_batch_of_one_meets_nobody() -> None:
    assert not batch_meets_batch((1, 1), (1,))
    assert batch_meets_batch((2, 1), (2,))


def test_the_hint_squeezes_the_column() -> None:
    (alert,) = broadcast_loss(pair((32,), (32, 1)))
    assert isinstance(alert, Alert)
    assert "squeeze(1) for (32, 1)" in alert.hint
    assert alert.where == "train.py:31"
