"""Terms of a loss that no gradient flows through."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from .test_signs import followed


def main(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y)


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], bool]] = {
    "detached": (lambda z, y, v: main(z, y) + F.mse_loss(z.detach(), v), True),
    "weighed": (lambda z, y, v: 0.5 * F.mse_loss(z.detach(), v).mean() / 3 + main(z, y), True),
    "one value each": (lambda z, y, v: main(z, y) + F.l1_loss(z.detach(), v, reduction="none").sum(1).mean(), True),
    "by hand": (lambda z, y, v: main(z, y) + ((z.detach() - v) ** 2).mean(), True),
    "before a bonus": (lambda z, y, v: main(z, y) + F.mse_loss(z.detach(), v) - 0.1 * z.std(), True),
    "two": (lambda z, y, v: sum([F.mse_loss(z.data, v), F.l1_loss(z.data, v)]) + main(z, y), True),
    "with a gradient": (lambda z, y, v: main(z, y) + F.mse_loss(z, v), False),
    "of given values": (lambda z, y, v: main(z, y) + F.mse_loss(v, v.flip(0)), False),
    "not added": (lambda z, y, v: main(z, y) * (1 + F.mse_loss(z.detach(), v)), False),
    "weight zero": (lambda z, y, v: main(z, y) + 0.0 * F.mse_loss(z.detach(), v), False),
    "taken off": (lambda z, y, v: main(z, y) - F.mse_loss(z.detach(), v), False),
    "value alone": (lambda z, y, v: F.mse_loss(z.detach(), v) + main(z, y) - main(z, y).detach(), False),
    "learned elsewhere": (lambda z, y, v: F.mse_loss(z.detach(), v) + 0.25 * F.mse_loss(z, v.detach()), False),
    "behind argmax": (lambda z, y, v: main(z, y) + 0.5 * (z.argmax(1) != y).float().mean(), True),
    "behind a threshold": (lambda z, y, v: (1 - ((z > 0) * v).sum() / v.sum()) + main(z, y), True),
    "behind argmax, weight zero": (lambda z, y, v: main(z, y) + 0.0 * (z.argmax(1) != y).float().mean(), False),
    "a slope for argmax": (
        lambda z, y, v: (lambda s: (z.argmax(1) != y).float().mean() + (s - s.detach()))(main(z, y)),
        False,
    ),
    "a slope taken off": (
        lambda z, y, v: (lambda s: (z.argmax(1) != y).float().mean() + s - s.detach())(main(z, y)),
        False,
    ),
    "chosen by a threshold": (lambda z, y, v: main(z, y) + (z * (z > 0)).mean(), False),
    "an own loss": (lambda z, y, v: F.mse_loss(z.detach(), v), False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_idle_terms(name: str) -> None:
    loss, idle = LOSSES[name]
    followers, out = followed(loss)
    assert bool(followers.idle.of(out)) is idle


def test_the_cut_is_named() -> None:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        with torch.no_grad():
            beside = F.mse_loss(z * 2, v)
        return main(z, y) + beside

    followers, out = followed(loss)
    (term,) = followers.idle.of(out)
    assert (term.function, term.cut.operation) == ("mse_loss", "no_grad")
