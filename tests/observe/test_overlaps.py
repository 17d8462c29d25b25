"""Quotients of overlaps written by hand, and whether probabilities or raw scores go in."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sanity_watchdog.observe.calls import Trace
from sanity_watchdog.observe.intercept import FollowingMode, Interception
from sanity_watchdog.observe.lineage import Lineage

X, Y = torch.randn(16, 6), (torch.randn(16, 3) > 0).float()


def found(
    loss: Callable[[Tensor, Tensor], Tensor], y: Tensor = Y, scale: float = 1.0
) -> list[tuple[str, float, float]]:
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 3), X * scale
    trace = Trace(followed=True)
    inside = Interception(trace, lambda call: None, 0)
    with FollowingMode(inside, Lineage(trace, (x, y), True)):
        loss(layer(x), y)
    inside.tell()
    return trace.overlaps


def dice(z: Tensor, y: Tensor) -> Tensor:
    return 1 - 2 * (z * y).sum() / (z.sum() + y.sum())


def squared(z: Tensor, y: Tensor) -> Tensor:
    return -(2 * (y * z).sum(1) + 1).div(z.pow(2).sum(1) + (y * y).sum(1) + 1).mean()


def jaccard(z: Tensor, y: Tensor) -> Tensor:
    both = (z * y).mean(0)
    return (1 - both / (z.mean(0) + y.mean(0) - both + 1e-6)).mean()


def tversky(z: Tensor, y: Tensor) -> Tensor:
    hit = (z * y).sum()
    return 1 - hit / (hit + 0.5 * (z * (1 - y)).sum() + 0.5 * ((1 - z) * y).sum())


@pytest.mark.parametrize("loss", [dice, squared, jaccard, tversky])
def test_raw_scores_are_named_and_probabilities_are_not(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    ((where, low, high),) = found(loss)
    assert "test_overlaps.py" in where
    assert low < 0 < high
    assert not found(lambda z, y: loss(z.sigmoid(), y))
    assert not found(lambda z, y: loss(z.softmax(1), y))
    assert not found(lambda z, y: loss(z.detach(), y))


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: (z * y).sum() / y.sum(),
        lambda z, y: (z * y).sum() / z.sum(),
        lambda z, y: (z * y).sum() / (z.norm() * y.norm()),
        lambda z, y: (z - y).square().sum() / (z.sum() + y.sum()),
        lambda z, y: dice(0.5 + 0.05 * z, y),
    ],
    ids=["masked mean", "weights", "cosine", "squares", "inside"],
)
def test_other_quotients(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert not found(loss, scale=0.5)


def test_scores_of_a_transposed_convolution_are_raw() -> None:
    up = nn.ConvTranspose1d(3, 3, 2, 2)
    assert found(lambda z, y: dice(up(z.relu()[..., None])[..., 0], y))
    assert not found(lambda z, y: dice(up(z.relu()[..., None])[..., 0].sigmoid(), y))


def test_targets_beyond_zero_and_one_are_no_masks() -> None:
    assert not found(dice, Y * 3 - 1)
