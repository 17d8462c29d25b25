from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.half import fp16_overflow, fp16_underflow
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.half import HalfGradients, HalfRange, LostLayer

LAYER = LostLayer(name="net.0.weight", numel=2048, share=0.31, error=0.02, zeros=0.4, largest=-15.2)
HALF_GONE = replace(LAYER, name="net.2.weight", share=0.8)
GRADIENTS = HalfGradients(
    shares=(0.29, 0.31, 0.33),
    layers=(LAYER,),
    measured=4,
    silent=False,
    scale=1.0,
    scaled=False,
    native_bf16=False,
)
RANGE = HalfRange(native_bf16=False)
OVERFLOWED = replace(RANGE, bad=("net.2.bias", "net.0.weight"), infinite=True)
ACTIVATION = replace(RANGE, module="net.1", kind="Linear", tightest="net.0", activation_headroom=0.3)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (fp16_underflow, GRADIENTS),
    (fp16_underflow, replace(GRADIENTS, shares=(0.02, 0.03, 0.02), layers=(HALF_GONE, LAYER))),
    (fp16_underflow, replace(GRADIENTS, shares=(0.5, 0.6, 0.7), scaled=True, scale=2.0**-3, native_bf16=True)),
    (fp16_underflow, replace(GRADIENTS, shares=(1.0, 1.0, 1.0), silent=True, layers=())),
    (fp16_underflow, replace(GRADIENTS, shares=(1.0, 1.0, 1.0), silent=True, layers=(), ever=False)),
    (fp16_overflow, OVERFLOWED),
    (fp16_overflow, replace(OVERFLOWED, scaled=True, scale=0.25, native_bf16=True)),
    (fp16_overflow, ACTIVATION),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (fp16_underflow, replace(GRADIENTS, shares=(0.01, 0.02, 0.01))),
    (fp16_underflow, replace(GRADIENTS, shares=(0.01, 0.9, 0.01))),
    (fp16_underflow, replace(GRADIENTS, shares=(0.3, 0.3))),
    (fp16_underflow, replace(GRADIENTS, shares=(0.02, 0.03, 0.02), layers=(replace(HALF_GONE, numel=10),))),
    (fp16_overflow, RANGE),
    (fp16_overflow, replace(OVERFLOWED, scaled=True, scale=2.0**16)),
    (fp16_overflow, replace(OVERFLOWED, infinite=False)),
]


def only(check: Check[Any], seen: Evidence, **options: Any) -> Alert:
    (found,) = (f for f in check(seen, **options) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize(
    ("share", "severity"), [(0.1, Severity.WARNING), (0.49, Severity.WARNING), (0.5, Severity.ERROR)]
)
def test_half_of_the_run_is_an_error(share: float, severity: Severity) -> None:
    assert only(fp16_underflow, replace(GRADIENTS, shares=(share,) * 3)).severity is severity


def test_bfloat16_is_offered_only_where_the_device_has_it() -> None:
    assert "bf16" not in only(fp16_underflow, GRADIENTS).hint
    assert "bf16" in only(fp16_underflow, replace(GRADIENTS, native_bf16=True)).hint


def test_a_loss_that_is_nan_in_every_share_is_not_quiet() -> None:
    assert only(fp16_overflow, replace(OVERFLOWED, scaled=True, scale=float("nan")))


def test_two_micro_batches_are_too_few() -> None:
    (found,) = fp16_underflow(replace(GRADIENTS, shares=(0.9, 0.9)))
    assert isinstance(found, Skip)


def test_the_limit_can_be_set() -> None:
    assert not [f for f in fp16_underflow(GRADIENTS, run_share=0.5) if isinstance(f, Alert)]
