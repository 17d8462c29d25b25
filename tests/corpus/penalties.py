"""Penalties on the slope of a critic, in pieces of a sample."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.runs import Manual, loader, mlp

from .case import Run, fault

Mix = Callable[[Tensor, Tensor], Tensor]
Length = Callable[[Tensor], Tensor]


def per_sample(real: Tensor, made: Tensor) -> Tensor:
    """Between a sample and a made one, at a place that is drawn for the two."""
    alpha = torch.rand(len(real), *[1] * (real.ndim - 1))
    return alpha * real + (1 - alpha) * made


def whole(slope: Tensor) -> Tensor:
    return slope.flatten(1).norm(2, dim=1)


class Penalised(Manual):
    """A generator and a critic of samples of ``shape``, whose slope is to be 1."""

    def __init__(
        self, shape: tuple[int, ...], mix: Mix, length: Length, critic: nn.Module | None = None, summed: bool = False
    ) -> None:
        size = torch.Size(shape).numel()
        super().__init__(nn.Sequential(mlp(8, size), nn.Unflatten(1, shape)))
        self.critic = nn.Sequential(nn.Flatten(), mlp(size, 1)) if critic is None else critic
        self.mix, self.length, self.summed = mix, length, summed

    def training_step(self, batch: Any, batch_idx: int) -> None:
        player, judge = self.optimizers()
        real = batch[0]
        made = self.net(torch.randn(len(real), 8))
        between = self.mix(real, made.detach()).requires_grad_(True)
        scores = self.critic(between)
        if self.summed:
            slope = torch.autograd.grad(scores.sum(), between, create_graph=True)[0]
        else:
            slope = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)[0]
        penalty = ((self.length(slope) - 1) ** 2).mean()
        judge.zero_grad()
        self.manual_backward(self.critic(made.detach()).mean() - self.critic(real).mean() + 10 * penalty)
        judge.step()
        player.zero_grad()
        self.manual_backward(-self.critic(self.net(torch.randn(len(real), 8))).mean())
        player.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(part.parameters(), 1e-4, betas=(0.5, 0.9)) for part in (self.net, self.critic)]


def samples(*shape: int) -> Any:
    return loader(torch.randn(512, *shape) + 0.5)


@fault("WD118")
def length_over_the_channels_alone(fixed: bool) -> Run:
    shape = (3, 8, 8)
    length = whole if fixed else (lambda slope: slope.norm(2, dim=1))
    return Penalised(shape, per_sample, length), samples(*shape), {}


@fault("WD118")
def length_over_the_channels_of_summed_scores(fixed: bool) -> Run:
    length = whole if fixed else (lambda slope: slope.norm(2, dim=1))
    return Penalised((3, 8, 8), per_sample, length, summed=True), samples(3, 8, 8), {}


@fault("WD118")
def roots_of_squares_at_each_moment(fixed: bool) -> Run:
    def length(slope: Tensor) -> Tensor:
        return (slope.pow(2).sum((1, 2) if fixed else 1) + 1e-12).sqrt()

    return Penalised((1, 24), per_sample, length), samples(1, 24), {}


@fault("WD118")
def weights_of_their_own_for_each_pixel(fixed: bool) -> Run:
    def mix(real: Tensor, made: Tensor) -> Tensor:
        alpha = torch.rand(len(real), 1, 1, 1) if fixed else torch.rand(real.shape)
        return alpha * real + (1 - alpha) * made

    return Penalised((1, 8, 8), mix, whole), samples(1, 8, 8), {}


@fault("WD118")
def steps_of_their_own_for_each_pixel(fixed: bool) -> Run:
    def mix(real: Tensor, made: Tensor) -> Tensor:
        alpha = torch.rand(len(real), 1, 1, 1).expand_as(real) if fixed else torch.rand_like(real)
        return real + alpha * (made - real)

    return Penalised((1, 8, 8), mix, whole), samples(1, 8, 8), {}
