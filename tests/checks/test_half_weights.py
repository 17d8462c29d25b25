from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.half_weights import lost_updates, vanishing_constant
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.half_weights import LostUpdates
from sanity_watchdog.evidence.scaler import TinyConstant

LOST = LostUpdates(
    shares=(0.99, 0.97, 0.98, 0.96),
    dtype="bfloat16",
    parameters=("net.0.weight", "norm.weight"),
    tensors=12,
    rate=1e-6,
    native_bf16=True,
)
EPS = TinyConstant(
    optimizer="Adam", name="eps", value=1e-8, dtype="float16", smallest=2.0**-24, parameters=("net.0.weight",)
)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (lost_updates, LOST),
    (lost_updates, replace(LOST, shares=(0.0, 1.0, 1.0, 1.0), dtype="float16", native_bf16=False)),
    (lost_updates, replace(LOST, shares=(0.1, 0.72, 0.72, 0.72))),
    (vanishing_constant, EPS),
    (vanishing_constant, replace(EPS, value=0.0, dtype="bfloat16", smallest=9.2e-41)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (lost_updates, replace(LOST, shares=(0.99, 0.7, 0.69, 0.71))),
    (lost_updates, replace(LOST, shares=(0.99, 0.99, 0.99))),
    (vanishing_constant, replace(EPS, value=1e-4)),
    (vanishing_constant, replace(EPS, value=2.0**-24)),
    (vanishing_constant, replace(EPS, dtype="bfloat16", smallest=9.2e-41)),
]


@pytest.mark.parametrize("shares", [(0.9,), (0.9, 0.9, 0.9)])
def test_the_first_step_does_not_count(shares: tuple[float, ...]) -> None:
    (found,) = lost_updates(replace(LOST, shares=shares))
    assert isinstance(found, Skip)


def test_nan_is_not_quiet() -> None:
    (found,) = lost_updates(replace(LOST, shares=(float("nan"),) * 4))
    assert isinstance(found, Alert)
