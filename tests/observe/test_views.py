"""Scores of contrastive losses whose two views are one."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.calls import LossCall
from sanity_watchdog.observe.likeness import NEAR, VARIED, _positives


def scores(gap: float = 0.0, n: int = 16) -> tuple[Tensor, Tensor]:
    a = torch.randn(n, 32)
    z = F.normalize(torch.cat([a, a + gap * torch.randn(n, 32)]), dim=1)
    return (z @ z.T / 0.2).fill_diagonal_(-torch.inf).requires_grad_(), torch.arange(2 * n).roll(n)


def are_one(given: Tensor, labels: Tensor, name: str = "cross_entropy") -> bool:
    found = _positives(LossCall(name, "train.py:31", {"input": given, "target": labels}))
    if found is None:
        return False
    apart, spread, largest = found.tolist()
    return spread > VARIED * largest and apart <= NEAR * largest


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.1])
def test_equal_views_have_one_score(gap: float) -> None:
    torch.manual_seed(0)
    assert are_one(*scores(gap)) is (gap == 0)


def test_what_is_no_pair_of_views_is_left_alone() -> None:
    torch.manual_seed(0)
    given, labels = scores()
    assert not are_one(given, labels.roll(1))
    assert not are_one(torch.zeros(16, 10).requires_grad_(), torch.arange(16) % 10)
    assert not are_one(given.detach(), labels)
    assert not are_one(given[:4], labels[:4])
    assert not are_one(given, labels.float())
    assert not are_one(given, labels, "nll_loss")
