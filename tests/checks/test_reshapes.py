from typing import Any

from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.reshapes import torn_axes, unused_result
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.dependence import Reordered, UnusedResult

FIRING: list[tuple[Check[Any], Evidence]] = [
    (torn_axes, Reordered(operation="view", where="model.py:9", before=(16, 32, 32, 3), after=(16, 3, 32, 32))),
    (torn_axes, Reordered(operation="reshape", where="model.py:9", before=(16, 3, 32, 32), after=(16, 64, 48))),
    (unused_result, UnusedResult(operation="masked_fill", where="model.py:21", twin=True)),
    (unused_result, UnusedResult(operation="normalize", where="model.py:22")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [(torn_axes, Reordered()), (unused_result, UnusedResult())]
SKIPPED: list[tuple[Check[Any], Evidence, Skip]] = []
