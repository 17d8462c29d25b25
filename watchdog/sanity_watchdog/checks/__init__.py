"""Every check there is, in the order of their codes. This tuple is the registry."""

from typing import Any

from . import half, half_weights, loop, modes, parameters, placement, precision, scaler, schedules, watchdog
from .check import Check, Findings, Skip, check

CHECKS: tuple[Check[Any], ...] = (
    watchdog.watchdog_failed,
    watchdog.nothing_judged,
    half.fp16_underflow,
    half.fp16_overflow,
    scaler.stuck_scaler,
    half_weights.lost_updates,
    half_weights.vanishing_constant,
    scaler.clipped_before_unscaling,
    scaler.missing_scaler,
    parameters.zeroed_parameter,
    parameters.stuck_at_zero,
    parameters.non_finite_parameter,
    parameters.identical_units,
    precision.precision_fallback,
    precision.dtype_mismatch,
    placement.device_mismatch,
    placement.unregistered_tensor,
    schedules.zero_learning_rate,
    schedules.schedule_counts_epochs,
    schedules.overwritten_learning_rate,
    modes.eval_mode,
    modes.extreme_dropout,
    loop.step_without_update,
    loop.shared_metric,
    modes.stale_statistics,
    loop.growing_graph,
    loop.stalled_step,
)

__all__ = ["CHECKS", "Check", "Findings", "Skip", "check"]
