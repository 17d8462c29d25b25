"""Operations of a loss's graph that can divide by zero or take its logarithm."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.hazards import hazards

LABELS = torch.tensor([0, 2, 1])


def picked(p: Tensor) -> Tensor:
    return p[range(3), LABELS]


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda z: -picked(torch.softmax(z, 1)).log().mean(), ["log of a softmax"]),
        (lambda z: -picked(torch.softmax(z, 1).log()).mean(), ["log of a softmax"]),
        (lambda z: -torch.sigmoid(z).squeeze().mul(1.0).log().sum(), ["log of a sigmoid"]),
        (lambda z: -(picked(torch.softmax(z, 1)) + 1e-6).log().mean(), []),
        (lambda z: -picked(torch.softmax(z, 1)).clamp(1e-6).log().mean(), []),
        (lambda z: F.cross_entropy(z, LABELS), []),
        (lambda z: z.sum() / 3, []),
    ],
    ids=["picked", "whole", "sigmoid", "with a constant", "clamped", "cross entropy", "by a number"],
)
def test_logarithms_of_probabilities(loss: Callable[[Tensor], Tensor], found: list[str]) -> None:
    told = hazards(loss(torch.randn(3, 3, requires_grad=True)))
    assert [text for text in told if "log of" in text] == found
    assert not found or told[0] == found[0]


@pytest.mark.parametrize(
    ("loss", "word"),
    [
        (lambda z: z.pow(2).sum().sqrt(), "square root"),
        (lambda z: (z / z.sum()).mean(), "division"),
        (lambda z: z.std(0).sum(), "standard deviation"),
        (lambda z: z.exp().sum(), "exponential"),
        (lambda z: z.masked_fill(z > 0, -torch.inf).softmax(1).sum(), "behind a mask"),
        (lambda z: (z.masked_fill(z > 0, -9e9) / 2).softmax(1).sum(), "behind a mask"),
        (lambda z: torch.baddbmm(-z.detach()[None], z[None], z[None]).softmax(-1).sum(), "behind a mask"),
        (lambda z: F.ctc_loss(z.log_softmax(1), LABELS[1:], torch.tensor(3), torch.tensor(2)), "ctc_loss"),
    ],
)
def test_other_operations_that_divide(loss: Callable[[Tensor], Tensor], word: str) -> None:
    told = hazards(loss(torch.randn(3, 3, requires_grad=True)))
    assert any(word in text for text in told), told


def test_no_row_is_masked_throughout_by_a_causal_mask() -> None:
    z = torch.randn(3, 3, requires_grad=True)
    loss = z.masked_fill(torch.ones(3, 3).triu(1) > 0, -torch.inf).softmax(1).sum()
    assert any("mask" in text for text in hazards(loss))
    assert not hazards(loss, causal=True)
    assert not hazards(z.add(1).softmax(1).sum())
