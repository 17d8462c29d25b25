"""Every check there is, in the order of their codes. This tuple is the registry."""

from typing import Any

from . import loop, modes, parameters, schedules, watchdog
from .check import Check, Findings, Skip, check

CHECKS: tuple[Check[Any], ...] = (
    watchdog.watchdog_failed,
    watchdog.nothing_judged,
    parameters.zeroed_parameter,
    parameters.stuck_at_zero,
    parameters.non_finite_parameter,
    parameters.identical_units,
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
