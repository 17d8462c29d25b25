from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.gradients import exploding_gradients, non_finite_gradient, vanishing_gradients
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.gradients import BadGradients, DepthProfile, GradientSizes
from sanity_watchdog.evidence.progress import Culprit

FINE = BadGradients(bad=(), last_finite="", measured=4, infinite=False, loss_finite=True, weights_finite=True)
BAD = replace(FINE, bad=("net.0.bias", "net.0.weight"), last_finite="net.2.weight", operations=("sqrt", "pow"))
DEEP = DepthProfile(
    slopes=(2.8, 2.7, 2.9, 2.8), layers=13, first="net.0.weight", last="net.24.weight", smallest=-40.0, largest=-4.0
)
CALM = GradientSizes(
    largest=(0.4, 0.3, 0.5, 0.2, 0.1),
    start=0.4,
    samples=5,
    ratio=float("nan"),
    name="net.0.weight",
    batch=5,
    adaptive=False,
    clipped=False,
)
SPIKE = replace(CALM, largest=(0.4, 0.3, 0.5, 0.2, 9e5), batch=312, samples=20)
EXPLODED = replace(CALM, largest=(3e9,), start=3e9, samples=1, ratio=9e8, batch=0)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (non_finite_gradient, BAD),
    (non_finite_gradient, replace(BAD, operations=(), last_finite="", infinite=True)),
    (non_finite_gradient, replace(BAD, scaled=True, scale=0.5)),
    (non_finite_gradient, replace(BAD, culprit=Culprit("multi_head_attention_forward", "net.py:12", -2.4, 2.1))),
    (vanishing_gradients, DEEP),
    (vanishing_gradients, replace(DEEP, slopes=(1.2, 1.2, 1.2), layers=21)),
    (vanishing_gradients, replace(DEEP, slopes=(0.4, 0.4, 0.4), layers=61)),
    (exploding_gradients, SPIKE),
    (exploding_gradients, EXPLODED),
    (exploding_gradients, replace(CALM, span=-15.0, layers=8, samples=4)),
    (exploding_gradients, replace(SPIKE, largest=(0.4, float("nan")))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (non_finite_gradient, FINE),
    (non_finite_gradient, replace(BAD, loss_finite=False)),
    (non_finite_gradient, replace(BAD, weights_finite=False)),
    (non_finite_gradient, replace(BAD, scaled=True, scale=65536.0)),
    (vanishing_gradients, replace(DEEP, slopes=(0.9, 0.8, 0.9), layers=8)),
    (vanishing_gradients, replace(DEEP, slopes=(0.4, 0.4, 0.4), layers=41)),
    (vanishing_gradients, replace(DEEP, layers=5)),
    (vanishing_gradients, replace(DEEP, slopes=(2.8, 2.8))),
    (vanishing_gradients, replace(DEEP, slopes=(-0.8, -0.7, -0.8))),
    (exploding_gradients, CALM),
    (exploding_gradients, replace(CALM, largest=(3000.0,), start=3000.0, samples=1, ratio=650.0)),
    (exploding_gradients, replace(CALM, largest=(1e-6, 5.0), start=1e-6)),
    (exploding_gradients, replace(CALM, largest=(2e3, 3e3), start=2e3, samples=7)),
]


def only(check: Check[Any], seen: Evidence, **options: Any) -> Alert:
    (found,) = (f for f in check(seen, **options) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize(
    ("seen", "severity"),
    [
        (SPIKE, Severity.WARNING),
        (replace(SPIKE, clipped=True), Severity.INFO),
        (replace(SPIKE, adaptive=True), Severity.WARNING),
        (EXPLODED, Severity.WARNING),
        (replace(EXPLODED, adaptive=True), Severity.INFO),
        (replace(EXPLODED, adaptive=True, largest=(1e31,), start=1e31), Severity.WARNING),
    ],
)
def test_what_clipping_and_adaptive_steps_absorb_is_a_note(seen: GradientSizes, severity: Severity) -> None:
    assert only(exploding_gradients, seen).severity is severity


def test_a_spike_names_its_batch() -> None:
    assert "batch 312" in only(exploding_gradients, SPIKE).message


def test_the_operation_is_named_where_it_is_known() -> None:
    assert "sqrt" in only(non_finite_gradient, BAD).hint
    assert "net.0.bias" in only(non_finite_gradient, replace(BAD, operations=())).hint


def test_what_another_check_explains_is_skipped_not_passed() -> None:
    (found,) = non_finite_gradient(replace(BAD, loss_finite=False))
    assert isinstance(found, Skip)
