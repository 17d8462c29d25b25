"""Noise that a step draws and puts in the wrong place: diffusion and variational networks."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .parts import images


class Denoiser(Classifier):
    """``loss(module, x, level)`` of a network that gets noisy rows and their level."""

    def __init__(self, loss: Any) -> None:
        super().__init__(mlp(21, 20, 64), loss)

    def predict(self, x: Tensor, level: Tensor) -> Tensor:
        return self.net(torch.cat([x, level], 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self, batch[0], torch.rand(len(batch[0]), 1))


def mixed(x: Tensor, level: Tensor, noise: Tensor | None = None) -> Tensor:
    noise = torch.randn_like(x) if noise is None else noise
    return (1 - level).sqrt() * x + level.sqrt() * noise


@fault("WD116")
def noise_drawn_anew_for_the_target(fixed: bool) -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        made = module.predict(mixed(x, level, noise), level)
        return F.mse_loss(made, noise if fixed else torch.randn_like(x))

    return Denoiser(loss), loader(blobs()[0]), {}


@fault("WD116")
def noise_that_a_function_draws_for_itself() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return (noise - module.predict(mixed(x, level), level)).pow(2).mean()

    return Denoiser(loss), loader(blobs()[0]), {}


@fault("WD116")
def noisy_rows_asked_for_again(fixed: bool) -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        near = mixed(x, level)
        return F.mse_loss(module.predict(near, level), x if fixed else near)

    return Denoiser(loss), loader(blobs()[0]), {}


@fault("WD116")
def velocity_towards_noise_drawn_anew(fixed: bool) -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        made = module.predict(mixed(x, level, noise), level)
        velocity = (noise if fixed else torch.randn_like(x)) - x
        return F.mse_loss(made.float(), velocity.float())

    return Denoiser(loss), loader(blobs()[0]), {}


LEVELS = torch.linspace(0.02, 0.98, 50)


@fault("WD116")
def another_noise_for_images_in_manual_optimisation() -> Run:
    class Images(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x = batch[0]
            level = LEVELS[torch.randint(0, 50, (len(x),))][:, None, None, None]
            noise = torch.empty_like(x).normal_()
            made = self.net(level * torch.randn(x.shape) + (1 - level) * x)
            step_by_hand(self, F.smooth_l1_loss(made, noise, reduction="none").mean((1, 2, 3)).mean())

    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
    return Images(net), loader(images()[0]), {}


class Coder(Classifier):
    """Codes of four numbers, drawn by ``draw(mean, log_variance)``, or ``codes(mean, log_variance)`` as a whole."""

    def __init__(self, draw: Any = None, codes: Any = None) -> None:
        super().__init__(mlp(20, 8, 64))
        self.decoder, self.draw, self.codes = mlp(4, 20, 64), draw, codes

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        mean, spread = self.net(batch[0]).chunk(2, 1)
        if self.codes is None:
            code = self.draw(mean, spread)
            divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1).mean()
        else:
            near = self.codes(mean, spread)
            code = self.draw(near)
            divergence = D.kl_divergence(near, D.Normal(torch.zeros_like(mean), 1.0)).sum(1).mean()
        return F.mse_loss(self.decoder(code), batch[0], reduction="sum") / len(mean) + divergence


@fault("WD116")
def noise_times_the_log_variance(fixed: bool) -> Run:
    def draw(mean: Tensor, spread: Tensor) -> Tensor:
        return mean + torch.randn_like(spread) * (torch.exp(0.5 * spread) if fixed else spread)

    return Coder(draw), loader(blobs()[0]), {}


@fault("WD116")
def noise_times_half_the_log_variance() -> Run:
    return Coder(lambda mean, spread: torch.randn(mean.shape).mul(0.5 * spread) + mean), loader(blobs()[0]), {}


@fault("WD116")
def noise_times_the_variance(fixed: bool) -> Run:
    def draw(mean: Tensor, spread: Tensor) -> Tensor:
        deviation = (spread / 2).exp() if fixed else spread.exp()
        return mean + D.Normal(0.0, 1.0).sample(mean.shape) * deviation

    return Coder(draw), loader(blobs()[0]), {}


@fault("WD116")
def sample_without_a_gradient(fixed: bool) -> Run:
    def draw(near: Any) -> Any:
        return near.rsample() if fixed else near.sample()

    return Coder(draw, lambda mean, spread: D.Normal(mean, (spread / 2).exp())), loader(blobs()[0]), {}


@fault("WD116")
def torch_normal_of_the_codes() -> Run:
    return Coder(lambda mean, spread: torch.normal(mean, (spread / 2).exp())), loader(blobs()[0]), {}


@fault("WD116")
def codes_drawn_inside_no_grad() -> Run:
    @torch.no_grad()
    def draw(mean: Tensor, spread: Tensor) -> Tensor:
        return mean + torch.randn_like(spread) * (spread / 2).exp()

    return Coder(draw), loader(blobs()[0]), {}


@fault("WD116")
def even_noise_to_be_predicted(fixed: bool) -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x) if fixed else torch.rand_like(x)
        return F.mse_loss(module.predict(mixed(x, level, noise), level), noise)

    return Denoiser(loss), loader(blobs()[0]), {}


@fault("WD116")
def codes_drawn_evenly(fixed: bool) -> Run:
    draw = torch.randn if fixed else torch.rand
    return Coder(lambda mean, spread: mean + draw(mean.shape) * (spread / 2).exp()), loader(blobs()[0]), {}


@fault("WD124")
def generator_seeded_in_each_step(fixed: bool) -> Run:
    class Seeded(Denoiser):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, own = batch[0], torch.Generator().manual_seed(self.global_step if fixed else 7)
            noise, level = torch.randn(x.shape, generator=own), torch.rand(len(x), 1, generator=own)
            return F.mse_loss(self.predict(mixed(x, level, noise), level), noise)

    return Seeded(None), loader(blobs()[0]), {}


@fault("WD124")
def same_rivals_for_each_user(fixed: bool) -> Run:
    class Ranked(Manual):
        def __init__(self) -> None:
            super().__init__(nn.Embedding(64, 8), lr=1e-2)
            self.items, self.own = nn.Embedding(32, 8), torch.Generator()

        def training_step(self, batch: Any, batch_idx: int) -> None:
            users, liked = batch
            if not fixed or not batch_idx:
                self.own.manual_seed(0)
            others = torch.randint(0, 32, liked.shape, generator=self.own)
            gap = (self.net(users) * (self.items(liked) - self.items(others))).sum(1)
            step_by_hand(self, -F.logsigmoid(gap).mean())

    users = torch.randint(0, 64, (512,))
    return Ranked(), loader(users, users * 7 % 32), {}
