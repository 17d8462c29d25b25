from typing import Any

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.penalties import piecewise_penalty
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import Penalty

FIRING: list[tuple[Check[Any], Evidence]] = [
    (piecewise_penalty, Penalty(pieces="gan.py:41")),
    (piecewise_penalty, Penalty(mixed="gan.py:38")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [(piecewise_penalty, Penalty())]


def test_the_length_goes_before_the_mixture() -> None:
    (alert,) = piecewise_penalty(Penalty(pieces="gan.py:41", mixed="gan.py:38"))
    assert isinstance(alert, Alert)
    assert alert.where == "gan.py:41"
