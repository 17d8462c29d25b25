from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.detached_loss import detached_loss
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.detached import Cut, DetachedLoss, DetachedTerm

CUTS = [Cut(name, "model.py:12") for name in ("argmax", "detach", "no_grad", "item", "tensor")]

FIRING: list[tuple[Check[Any], Evidence]] = [
    (detached_loss, DetachedLoss(attached=False)),
    (detached_loss, DetachedLoss(attached=False, history=True)),
    *((detached_loss, DetachedLoss(attached=False, cut=cut)) for cut in CUTS),
    *((detached_loss, DetachedTerm(function="mse_loss", where="model.py:20", cut=cut)) for cut in CUTS[:3]),
]
QUIET: list[tuple[Check[Any], Evidence]] = [(detached_loss, DetachedLoss(attached=True, history=True))]


@pytest.mark.parametrize("cut", CUTS, ids=lambda c: c.operation)
def test_the_operation_and_its_line_are_named(cut: Cut) -> None:
    (alert,) = detached_loss(DetachedLoss(attached=False, cut=cut))
    assert isinstance(alert, Alert)
    assert cut.operation in alert.message
    assert alert.where == "model.py:12"
