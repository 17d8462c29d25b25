from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.noise import misplaced_noise
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import DrawnNoise

KINDS = ("unseen", "copied", "even", "cut", "log", "variance")

FIRING: list[tuple[Check[Any], Evidence]] = [
    *((misplaced_noise, DrawnNoise(kind=kind, where="train.py:31")) for kind in KINDS),
    (misplaced_noise, DrawnNoise(kind="unseen", where="train.py:31", origin="diffusion.py:12")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [(misplaced_noise, DrawnNoise())]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_part_of_the_evidence(kind: str) -> None:
    (alert,) = misplaced_noise(DrawnNoise(kind=kind, where="train.py:31"))
    assert isinstance(alert, Alert)
    assert dict(alert.evidence) == {"kind": kind}
    assert alert.where == "train.py:31"
