"""Healthy practice that naive checks accuse: nothing at WARNING or above, and the watchdog was awake."""

import pytest
import torch

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from tests.runs import assert_awake, codes, trainer
from tests.zoo import ZOO

JUDGED = 30
"""Checks that come to a verdict in the smallest of these runs."""


@pytest.mark.parametrize("name", ZOO)
def test_healthy_practice_is_quiet(name: str) -> None:
    torch.manual_seed(0)
    module, data, settings = ZOO[name]()
    dog = SanityWatchdog(fail_on=None)
    settings = {"max_steps": 40, "max_epochs": -1, "callbacks": (), **settings}
    trainer(dog, *settings.pop("callbacks"), **settings).fit(module, data)
    assert codes(dog, Severity.WARNING) == [], [str(a) for a in dog.alerts]
    assert_awake(dog, JUDGED)
