from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.scaler import clipped_before_unscaling, missing_scaler, stuck_scaler
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.scaler import ClippedNorms, ScaledClip, ScalerHistory, ScalerSetup

HEALTHY = ScalerHistory(
    attempts=40,
    skipped=7,
    window=32,
    window_skipped=0,
    start_scale=2.0**24,
    scale=2.0**17,
    constant=False,
    growth_interval=2000,
)
THRASHING = replace(HEALTHY, window_skipped=15, skipped=22, growth_interval=1)
COLLAPSED = replace(HEALTHY, scale=2.0**-5, skipped=40, window_skipped=32)
AHEAD = replace(HEALTHY, attempts=200, window_skipped=5, schedules_ahead=20)
FIXED = replace(HEALTHY, attempts=7000, skipped=0, constant=True, start_scale=2.0**16, scale=2.0**16)
CLIPPED = ClippedNorms(norms=(7.63e-6, 7.63e-6, 7.64e-6, 7.63e-6), scales=(65536.0,) * 4, manual=True)
SEEN_TWO = replace(CLIPPED, norms=(7.63e-6, 7.63e-6, 1.526e-5, 1.526e-5), scales=(65536.0, 65536.0, 32768.0, 32768.0))
OWN = ScaledClip(where="train.py:40", clip=1.0, norm=91_000.0, scale=65536.0)
SETUP = ScalerSetup(autocast_half=True, half_weights=(), trainable=4, scaler="live")

FIRING: list[tuple[Check[Any], Evidence]] = [
    (stuck_scaler, THRASHING),
    (stuck_scaler, COLLAPSED),
    (stuck_scaler, AHEAD),
    (stuck_scaler, FIXED),
    (clipped_before_unscaling, CLIPPED),
    (clipped_before_unscaling, SEEN_TWO),
    (clipped_before_unscaling, OWN),
    (missing_scaler, replace(SETUP, half_weights=("net.0.weight", "net.0.bias"))),
    (missing_scaler, replace(SETUP, scaler="disabled")),
    (missing_scaler, replace(SETUP, autocast_half=False, half_weights=("net.0.weight",), scaler="none")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (stuck_scaler, HEALTHY),
    (stuck_scaler, replace(HEALTHY, attempts=9, skipped=7, window=1, window_skipped=1)),
    (stuck_scaler, replace(HEALTHY, window=11, window_skipped=11)),
    (stuck_scaler, replace(AHEAD, schedules_ahead=8)),
    (stuck_scaler, replace(AHEAD, attempts=20_000, schedules_ahead=20)),
    (stuck_scaler, replace(FIXED, attempts=5000)),
    (stuck_scaler, replace(HEALTHY, attempts=0)),
    (clipped_before_unscaling, replace(CLIPPED, norms=(7.6e-6, 9.1e-6, 7.6e-6, 5.0e-6))),
    (clipped_before_unscaling, replace(CLIPPED, norms=(1e-3,) * 4, scales=(1.0,) * 4)),
    (clipped_before_unscaling, replace(CLIPPED, norms=(0.5,) * 4, scales=(64.0,) * 4)),
    (clipped_before_unscaling, replace(CLIPPED, norms=(7.63e-6,) * 3, scales=(65536.0,) * 3)),
    (clipped_before_unscaling, replace(OWN, clip=65536.0)),
    (clipped_before_unscaling, replace(OWN, norm=0.7)),
    (clipped_before_unscaling, replace(OWN, scale=8.0)),
    (missing_scaler, SETUP),
    (missing_scaler, replace(SETUP, autocast_half=False, scaler="none")),
]


def only(check: Check[Any], seen: Evidence, **options: Any) -> Alert:
    (found,) = (f for f in check(seen, **options) if isinstance(f, Alert))
    return found


def test_one_loss_scale_is_probably_and_two_are_certain() -> None:
    assert only(clipped_before_unscaling, CLIPPED).message.startswith("probably")
    assert not only(clipped_before_unscaling, SEEN_TWO).message.startswith("probably")


@pytest.mark.parametrize(
    ("seen", "severity"),
    [
        (THRASHING, Severity.ERROR),
        (COLLAPSED, Severity.ERROR),
        (AHEAD, Severity.WARNING),
        (FIXED, Severity.INFO),
    ],
)
def test_severities(seen: ScalerHistory, severity: Severity) -> None:
    assert only(stuck_scaler, seen).severity is severity


def test_half_weights_under_a_scaler_are_an_error_a_missing_scaler_a_note() -> None:
    assert only(missing_scaler, replace(SETUP, half_weights=("w",))).severity is Severity.ERROR
    assert only(missing_scaler, replace(SETUP, scaler="none")).severity is Severity.INFO


def test_without_attempts_there_is_nothing_to_judge() -> None:
    (found,) = stuck_scaler(replace(HEALTHY, attempts=0))
    assert isinstance(found, Skip)


def test_in_automatic_optimisation_nobody_clips_before_this() -> None:
    assert only(clipped_before_unscaling, replace(CLIPPED, manual=False)).severity is Severity.ERROR
    assert only(clipped_before_unscaling, CLIPPED).severity is Severity.WARNING
