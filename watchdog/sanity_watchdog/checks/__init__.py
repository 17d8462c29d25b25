"""Every check there is, in the order of their codes. This tuple is the registry."""

from typing import Any

from . import watchdog
from .check import Check, Findings, Skip, check

CHECKS: tuple[Check[Any], ...] = (
    watchdog.watchdog_failed,
    watchdog.nothing_judged,
)

__all__ = ["CHECKS", "Check", "Findings", "Skip", "check"]
