from typing import Any

from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.reshapes import torn_axes
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.dependence import Reordered

FIRING: list[tuple[Check[Any], Evidence]] = [
    (torn_axes, Reordered(operation="view", where="model.py:9", before=(16, 32, 32, 3), after=(16, 3, 32, 32))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [(torn_axes, Reordered())]
SKIPPED: list[tuple[Check[Any], Evidence, Skip]] = []
