"""Log-scales, and what they scale, in the step's loss; clipped surrogates."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from .test_signs import followed

HALVES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "precision": (lambda e, s: e**2 * (-s).exp() + s, False),
    "precision, wrong": (lambda e, s: e**2 * (-s).exp() - s, True),
    "variance": (lambda e, s: e**2 / (2 * s.exp()) + s / 2, False),
    "variance, wrong": (lambda e, s: e**2 / (2 * s.exp()) - s / 2, True),
    "deviation": (lambda e, s: (e / s.exp()).square() + s, False),
    "deviation, wrong": (lambda e, s: (e / s.exp()).square() - s, True),
    "absolute": (lambda e, s: e.abs() / s.exp() + s, False),
    "absolute, wrong": (lambda e, s: e.abs() / s.exp() - s, True),
    "logarithm": (lambda e, s: (e / (s.exp() + 1)) ** 2 + (s.exp() + 1).log(), False),
    "softplus": (lambda e, s: (lambda v: e**2 / v + v.log())(torch.nn.functional.softplus(s)), False),
    "softplus, wrong": (lambda e, s: (lambda v: e**2 / v - v.log())(torch.nn.functional.softplus(s)), True),
    "negated exponent": (lambda e, s: -((-s).neg()) + (e * s.exp()) ** 2, False),
    "negated exponent, wrong": (lambda e, s: -s.neg() + (e * s.exp()) ** 2, True),
    "shifted": (lambda e, s: (e * s.exp() + e.flip(0)) ** 2 + s, True),
    "both ways": (lambda e, s: (e * s.exp()) ** 2 + (e / s.exp()) ** 2 + s, False),
    "cancelled": (lambda e, s: ((e * s.exp()) / s.exp()) ** 2 + s, False),
    "with a penalty of its own": (lambda e, s: e**2 * s.exp() + s - 2 * s, False),
    "maximised": (lambda e, s: -(e**2 * s.exp()) - s, False),
    "of another": (lambda e, s: e**2 * s.exp() + s.flip(0).tanh(), False),
    "sign unknown": (lambda e, s: e * s.exp() + s, False),
}


@pytest.mark.parametrize("name", HALVES)
def test_log_scales(name: str) -> None:
    loss, wrong = HALVES[name]
    followers, out = followed(lambda z, y, v: loss(z[:, :2] - v[:, :2], z[:, 2:4]).sum(1).mean())
    assert bool(followers.scales.falling(out)) is wrong


def surrogate(choice: str, low: float = 0.8, high: float = 1.2, apart: bool = False) -> Callable[..., Tensor]:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        ratio, gain = (z[:, 0] - v[:, 0]).exp(), v[:, 1]
        clipped = ratio.clamp(low, high) * (gain.flip(0) if apart else gain)
        return getattr(torch, choice)(ratio * gain, clipped).mean()

    return loss


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        (surrogate("min"), True),
        (surrogate("minimum"), True),
        (surrogate("max"), False),
        (surrogate("min", 1.5, 2.0), False),
        (surrogate("min", apart=True), False),
        (lambda z, y, v: -surrogate("min")(z, y, v), False),
        (lambda z, y, v: -surrogate("max")(z, y, v), True),
        (lambda z, y, v: surrogate("min")(z, y, v) + torch.nn.functional.mse_loss(z, v), True),
        (lambda z, y, v: surrogate("min")(z, y, v).exp(), False),
    ],
)
def test_surrogates(loss: Callable[..., Tensor], wrong: bool) -> None:
    followers, out = followed(loss)
    assert [t.function for t in followers.signs.wrong(out)] == ["clipped surrogate"] * wrong
