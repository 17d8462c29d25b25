from typing import Any

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.rivals import allied_rivals
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import Alliance

FIRING: list[tuple[Check[Any], Evidence]] = [(allied_rivals, Alliance(where="gan.py:31"))]
QUIET: list[tuple[Check[Any], Evidence]] = [(allied_rivals, Alliance())]


def test_the_judges_line_is_named() -> None:
    (alert,) = allied_rivals(Alliance(where="gan.py:31"))
    assert isinstance(alert, Alert)
    assert alert.where == "gan.py:31"
