"""Slopes that are rightly measured, of samples, of places and of fields."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.runs import Classifier, loader, mlp

from .case import Run, healthy
from .penalties import Penalised, per_sample, samples, whole


@healthy
def length_over_all_axes_of_an_image() -> Run:
    def length(slope: Tensor) -> Tensor:
        return slope.norm(2, dim=(1, 2, 3)) + 0.0

    return Penalised((3, 8, 8), per_sample, length), samples(3, 8, 8), {}


@healthy
def one_weight_laid_over_the_whole_sample() -> Run:
    def mix(real: Tensor, made: Tensor) -> Tensor:
        alpha = torch.rand(len(real), 1).expand(len(real), real[0].numel()).contiguous().view_as(real)
        return alpha * real + ((1 - alpha) * made)

    return Penalised((1, 8, 8), mix, whole), samples(1, 8, 8), {}


@healthy
def mask_that_puts_two_images_together() -> Run:
    def mix(real: Tensor, made: Tensor) -> Tensor:
        mask = torch.zeros_like(real)
        mask[..., 2:6, 2:6] = 1
        return mask * real + (1 - mask) * made

    return Penalised((1, 8, 8), mix, whole), samples(1, 8, 8), {}


@healthy
def critic_of_patches_with_a_slope_for_each_place() -> Run:
    critic = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, padding=1))
    return Penalised((1, 8, 8), per_sample, lambda slope: slope.norm(2, dim=1), critic), samples(1, 8, 8), {}


@healthy
def distances_to_a_surface_with_slope_one() -> Run:
    class Eikonal(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            points = batch[0].requires_grad_()
            distance = self.net(points)
            slope = torch.autograd.grad(distance, points, torch.ones_like(distance), create_graph=True)[0]
            on = batch[0] / batch[0].norm(dim=-1, keepdim=True)
            return self.net(on.detach()).abs().mean() + 0.1 * ((slope.norm(dim=-1) - 1) ** 2).mean()

    net = nn.Sequential(nn.Linear(3, 32), nn.Softplus(), nn.Linear(32, 1))
    return Eikonal(net), loader(torch.randn(512, 16, 3)), {}


@healthy
def squares_of_a_slope_that_is_to_be_zero() -> Run:
    class Smooth(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0].requires_grad_()
            energy = self.net(x.flatten(1))
            slope = torch.autograd.grad(energy.sum(), x, create_graph=True)[0]
            return (energy - batch[1]).square().mean() + 0.1 * slope.pow(2).sum(1).mean()

    x = torch.randn(512, 3, 4)
    return Smooth(mlp(12, 1)), loader(x, x[:, :1, 0]), {}
