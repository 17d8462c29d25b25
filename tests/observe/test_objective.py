"""How losses enter the objective, by the names of graph nodes."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.objective import enters_as_sum, may_be_weighed

MASK = torch.tensor([1.0, 0.0, 1.0, 1.0])
OBJECTIVES: dict[str, tuple[Callable[[Tensor], Tensor], bool, bool]] = {
    "mean": (lambda v: v.mean(), False, False),
    "sum": (lambda v: v.sum(), True, False),
    "sum and a term": (lambda v: v.sum() + 1, True, False),
    "mean of rows": (lambda v: v.view(2, 2).sum(1).mean(), False, False),
    "divided sum": (lambda v: v.sum() / 4, False, False),
    "mask": (lambda v: (v * MASK).sum() / MASK.sum(), False, True),
    "picked": (lambda v: v[MASK > 0].mean(), False, True),
    "filled": (lambda v: v.masked_fill(MASK == 0, 0.0).sum(), False, True),
    "weighed rows": (lambda v: (v.view(2, 2).sum(1) * MASK[:2]).mean(), False, False),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_stands_between_the_elements_and_their_sum(name: str) -> None:
    objective, added_up, weighed = OBJECTIVES[name]
    scores = torch.randn(4, 3, requires_grad=True) * 2
    value = F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]), reduction="none")
    assert bool(enters_as_sum(objective(value), value)) == added_up
    assert may_be_weighed(objective(value), value) == weighed


def test_a_reduced_loss_cannot_be_weighed_and_an_unknown_path_may_be() -> None:
    scores = torch.randn(4, 3, requires_grad=True) * 2
    value = F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]))
    assert not may_be_weighed(value * 3, value)
    unreduced = F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]), reduction="none")
    assert may_be_weighed(None, unreduced)
    assert may_be_weighed(torch.ones((), requires_grad=True) * 2, unreduced)
