"""Noise that steps draw: targets, and codes of variational networks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.followers import Followers

from .test_signs import followed

W = torch.randn(5, 5)
TRAINED, WIDER = torch.randn(5, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)


def net(z: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, W) + z


TARGETS: dict[str, tuple[Callable[[Tensor, Tensor], Any], bool]] = {
    "one draw": (lambda z, v: (lambda e: F.mse_loss(net(z, v + e), e))(torch.randn_like(v)), False),
    "two draws": (lambda z, v: F.mse_loss(net(z, v + torch.randn_like(v)), torch.randn_like(v)), True),
    "by hand": (lambda z, v: (net(z, v + torch.randn(8, 5)) - torch.randn(8, 5)).square().mean(), True),
    "scaled": (lambda z, v: F.l1_loss(net(z, v + 0.1 * torch.randn(8, 5)), -2 * torch.randn(8, 5)), True),
    "of a distribution": (lambda z, v: F.mse_loss(net(z, v + torch.randn(8, 5)), D.Normal(0, 1).sample((8, 5))), True),
    "one through a list": (
        lambda z, v: (lambda e: F.mse_loss(net(z, torch.stack([v, e]).sum(0)), e))(torch.randn_like(v)),
        False,
    ),
    "one in places": (lambda z, v: (lambda e: F.mse_loss(net(z, put(v, e)), e))(torch.randn_like(v)), False),
    "one by way of the host": (lambda z, v: (lambda e: F.mse_loss(net(z, away(v, e)), e))(torch.randn_like(v)), False),
    "no noise in the input": (lambda z, v: F.mse_loss(net(z, v), torch.randn_like(v)), False),
    "of another shape": (lambda z, v: F.mse_loss(net(z, v + torch.randn(8, 1)), torch.randn_like(v)), False),
    "data beside noise": (lambda z, v: F.mse_loss(net(z, v + torch.randn(8, 5)), v + torch.randn(8, 5)), False),
    "less data": (lambda z, v: F.mse_loss(net(z, v + torch.randn(8, 5)), (torch.randn(8, 5) - v).float()), True),
    "data less it": (lambda z, v: (net(z, v + torch.randn(8, 5)) - (v - torch.randn(8, 5))).square().mean(), True),
    "less data, one draw": (
        lambda z, v: (lambda e: F.mse_loss(net(z, v + e), (e - v).reshape(8, 5)))(torch.randn_like(v)),
        False,
    ),
    "less noisy data": (lambda z, v: (lambda m: F.mse_loss(net(z, m), torch.randn(8, 5) - m))(put(v, v)), False),
    "sorted": (lambda z, v: F.mse_loss(net(z, v + torch.randn(8, 5)), torch.randn(8, 5).sort(0).values), False),
    "not a distance": (lambda z, v: (net(z, v + torch.randn(8, 5)) - torch.randn(8, 5)).mean(), False),
}


EVEN: dict[str, tuple[Callable[[Tensor, Tensor], Any], bool]] = {
    "like": (lambda z, v: (lambda e: F.mse_loss(net(z, v + 0.5 * e), e))(torch.rand_like(v)), True),
    "of a shape": (lambda z, v: (lambda e: F.mse_loss(net(z, v + 0.5 * e), e))(torch.rand(8, 5)), True),
    "by hand": (lambda z, v: (lambda e: (e - net(z, v.lerp(e, 0.3))).abs().mean())(torch.rand(8, 5)), True),
    "in place": (lambda z, v: (lambda e: F.l1_loss(net(z, v + e), e))(torch.empty(8, 5).uniform_()), True),
    "normal": (lambda z, v: (lambda e: F.mse_loss(net(z, v + 0.5 * e), e))(torch.randn_like(v)), False),
    "about zero": (lambda z, v: (lambda e: F.mse_loss(net(z, v + e), e))(2 * torch.rand_like(v) - 1), False),
    "a range": (lambda z, v: (lambda e: F.mse_loss(net(z, v + e), e))(torch.empty(8, 5).uniform_(-1, 1)), False),
    "small": (lambda z, v: (lambda e: F.mse_loss(net(z, v + e), e))(0.1 * torch.rand_like(v)), False),
    "a level": (lambda z, v: (lambda t: F.mse_loss(net(z, v + t)[:, :1], t))(torch.rand(8, 1)), False),
    "not in the input": (lambda z, v: F.mse_loss(net(z, v), torch.rand(8, 5)), False),
    "a velocity": (lambda z, v: (lambda e: F.mse_loss(net(z, v.lerp(e, 0.3)), v - e))(torch.rand(8, 5)), False),
}


@pytest.mark.parametrize("name", EVEN)
def test_even_noise_as_a_target(name: str) -> None:
    loss, found = EVEN[name]
    followers, _ = followed(lambda z, y, v: loss(z, v))
    assert bool(followers.even.found()) is found


def put(v: Tensor, noise: Tensor) -> Tensor:
    near = v + 0.01 * torch.randn_like(v)
    near[:, :2] = noise[:, :2]
    return near


def away(v: Tensor, noise: Tensor) -> Tensor:
    return v + torch.from_numpy(noise.numpy() * 0.5) + torch.randn_like(v)


@pytest.mark.parametrize("name", TARGETS)
def test_targets_of_noise(name: str) -> None:
    loss, unseen = TARGETS[name]
    followers, _ = followed(lambda z, y, v: loss(z, v))
    assert bool(followers.noise.unseen()) is unseen


T = torch.rand(8, 1)


def mixture(v: Tensor, level: Tensor = T) -> Tensor:
    return (1 - level).sqrt() * v + level.sqrt() * torch.randn_like(v)


def made(v: Tensor) -> Tensor:
    return F.linear(v, TRAINED)


COPIES: dict[str, tuple[Callable[[Tensor, Tensor], Any], bool]] = {
    "asked for again": (lambda z, v: (lambda m: F.mse_loss(made(m), m))(mixture(v)), True),
    "by hand, the other way": (lambda z, v: (lambda m: (m.clone() - made(m)).pow(2).sum())(mixture(v)), True),
    "beside its level": (
        lambda z, v: (lambda m: F.l1_loss(F.linear(torch.cat([m, T], 1), WIDER), m))(mixture(v)),
        True,
    ),
    "another mixture": (lambda z, v: F.mse_loss(made(mixture(v)), mixture(v)), False),
    "data": (lambda z, v: F.mse_loss(made(mixture(v)), v), False),
    "one level for all": (lambda z, v: (lambda m: F.mse_loss(made(m), m))(mixture(v, T[:1])), False),
    "data as they are": (lambda z, v: (lambda m: F.mse_loss(made(m), m))(v + T * torch.randn_like(v)), False),
    "not shown": (lambda z, v: F.mse_loss(made(v), mixture(v)), False),
    "added to the output": (lambda z, v: (lambda m: F.mse_loss(m + made(v), m))(mixture(v)), False),
}


@pytest.mark.parametrize("name", COPIES)
def test_mixtures_that_are_asked_for_again(name: str) -> None:
    loss, copied = COPIES[name]
    followers, _ = followed(lambda z, y, v: loss(z, v))
    assert bool(followers.mixtures.copied()) is copied


def test_noise_that_is_asked_for_as_well() -> None:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        noise = torch.randn_like(v)
        near = (1 - T) * v + T * noise
        return F.mse_loss(made(near), noise) + F.mse_loss(made(near), near)

    assert not followed(loss)[0].mixtures.copied()


def coded(draw: Callable[[Tensor, Tensor], Any]) -> Followers:
    def loss(z: Tensor, y: Tensor, v: Tensor) -> Tensor:
        mean, s = z[:, :2], z[:, 2:4]
        found = draw(mean, s)
        code, beside = found if isinstance(found, tuple) else (found, 0)
        divergence = -0.5 * (1 + s - mean.pow(2) - s.exp()).sum(1)
        return F.mse_loss(F.linear(code, W[:, :2].clone().requires_grad_()), v) + divergence.mean() + beside

    return followed(loss)[0]


def hidden(mean: Tensor, s: Tensor) -> Tensor:
    with torch.no_grad():
        return mean + (s / 2).exp() * torch.randn_like(s)


def scored(mean: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    near = D.Normal(mean, (s / 2).exp())
    code = near.sample()
    return code, near.log_prob(code).mean()


def scored_by_hand(mean: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    code = hidden(mean, s)
    return code, ((code - mean) ** 2).mean()


CODES: dict[str, tuple[Callable[[Tensor, Tensor], Any], list[str]]] = {
    "deviation": (lambda m, s: m + (0.5 * s).exp() * torch.randn_like(m), []),
    "log-variance": (lambda m, s: m + s * torch.randn_like(m), ["log"]),
    "half of it": (lambda m, s: torch.randn(8, 2).mul(s * 0.5).add(m), ["log"]),
    "variance": (lambda m, s: m + s.exp() * torch.randn_like(m), ["variance"]),
    "clamped": (lambda m, s: m + (0.5 * s.clamp(-4, 4)).exp() * torch.randn_like(m), []),
    "rsample": (lambda m, s: D.Normal(m, (s / 2).exp()).rsample(), []),
    "sample": (lambda m, s: D.Normal(m, (s / 2).exp()).sample(), ["cut"]),
    "torch.normal": (lambda m, s: torch.normal(m, (s / 2).exp()), ["cut"]),
    "no_grad": (hidden, ["cut"]),
    "sample, scored": (scored, []),
    "no_grad, scored by hand": (scored_by_hand, []),
    "both": (lambda m, s: (D.Normal(m, (s / 2).exp()).rsample(), F.linear(hidden(m, s), m[:1]).mean()), []),
    "even": (lambda m, s: m + (s / 2).exp() * torch.rand_like(m), ["even"]),
    "even, of another scale": (lambda m, s: m + W[0, :2].clone().requires_grad_() * torch.rand_like(m), []),
    "about zero": (lambda m, s: m + (s / 2).exp() * (2 * torch.rand_like(m) - 1), []),
}


@pytest.mark.parametrize("name", CODES)
def test_codes(name: str) -> None:
    draw, kinds = CODES[name]
    assert [kind for kind, _ in coded(draw).codes.found()] == kinds
