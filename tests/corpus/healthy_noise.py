"""Healthy noise: in inputs, targets and codes."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .noise import Coder, Denoiser, mixed


@healthy
def rows_of_noise_and_of_other_noise() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        one, other = (x + 0.3 * torch.randn_like(x) for _ in range(2))
        return F.mse_loss(module.predict(one, level), other)

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def noise_with_an_offset_and_a_perturbation() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x) + 0.1 * torch.randn(len(x), 1)
        near = mixed(x, level, noise + 0.1 * torch.randn_like(noise))
        return F.mse_loss(module.predict(near, level), noise)

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def rows_of_less_of_the_same_noise() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        return F.mse_loss(module.predict(mixed(x, level, noise), level), mixed(x, 0.8 * level, noise))

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def rows_rebuilt_with_their_perturbation() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        near = x + 0.2 * level * torch.randn_like(x)
        return F.mse_loss(module.predict(near, level), near)

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def velocity_between_noise_and_data() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        start, bridge = torch.randn_like(x), torch.randn_like(x)
        between = (1 - level) * start + level * x + 0.1 * (level * (1 - level)).sqrt() * bridge
        return (module.predict(between, level) - (x - start)).square().mean()

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def away_from_other_noise_as_well() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = torch.randn_like(x)
        made = module.predict(mixed(x, level, noise), level)
        return F.mse_loss(made, noise) - 0.05 * F.mse_loss(made, torch.randn_like(x))

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def the_same_noise_drawn_twice_from_one_seed() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        seed = int(level[0, 0] * 1e6)
        noise, again = (torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)) for _ in range(2))
        return F.mse_loss(module.predict(mixed(x, level, noise), level), again)

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def noise_written_into_places() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise, hidden = torch.randn_like(x), torch.rand(x.shape) < 0.7
        near = x + 0.01 * torch.randn_like(x)
        near[hidden] = noise[hidden]
        return (F.mse_loss(module.predict(near, level), noise, reduction="none") * hidden).mean()

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def samples_of_a_trained_distribution_as_targets() -> Run:
    class Taught(Denoiser):
        def __init__(self) -> None:
            super().__init__(None)
            self.teacher = mlp(20, 40).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            mean, spread = self.teacher(x).chunk(2, 1)
            wanted = D.Normal(mean, spread.exp()).sample()
            return F.mse_loss(self.predict(x + 0.1 * torch.randn_like(x), x[:, :1]), wanted)

    return Taught(), loader(blobs()[0]), {}


@healthy
def codes_sorted_against_sorted_noise() -> Run:
    class Sliced(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 8, 64))
            self.decoder = mlp(4, 20, 64)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, spread = self.net(batch[0]).chunk(2, 1)
            code = mean + torch.randn_like(mean) * (spread / 2).exp()
            gap = F.mse_loss(code.sort(0).values, torch.randn_like(code).sort(0).values)
            return F.mse_loss(self.decoder(code), batch[0]) + gap

    return Sliced(), loader(blobs()[0]), {}


@healthy
def deviations_by_their_logarithm() -> Run:
    class Deviations(Coder):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, log_std = self.net(batch[0]).chunk(2, 1)
            code = mean + log_std.exp() * torch.randn_like(mean)
            divergence = -0.5 * (1 + 2 * log_std - mean**2 - (2 * log_std).exp()).sum(1).mean()
            return F.mse_loss(self.decoder(code), batch[0], reduction="sum") / len(mean) + divergence

    return Deviations(), loader(blobs()[0]), {}


@healthy
def samples_without_a_gradient_beside_codes_with_one() -> Run:
    class Shows(Coder):
        def __init__(self) -> None:
            super().__init__()
            self.probe = nn.Linear(4, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, spread = self.net(batch[0]).chunk(2, 1)
            near = D.Normal(mean, (spread / 2).exp())
            code, shown = near.rsample(), near.sample()
            with torch.no_grad():
                self.log("shown", self.decoder(near.sample()).mean())
            divergence = D.kl_divergence(near, D.Normal(torch.zeros_like(mean), 1.0)).sum(1).mean()
            error = F.mse_loss(self.decoder(code), batch[0], reduction="sum") / len(mean)
            return error + divergence + F.cross_entropy(self.probe(shown), batch[1])

    return Shows(), loader(*blobs()), {}


@healthy
def actions_of_a_policy_held_near_a_prior() -> Run:
    class Actor(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 4))
            self.critic = mlp(22, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, gain = batch
            mean, log_std = self.net(x).chunk(2, 1)
            policy = D.Normal(mean, log_std.clamp(-2, 1).exp())
            action = policy.sample()
            value = self.critic(torch.cat([x, action], 1)).squeeze(1)
            earned = gain - action.square().sum(1)
            held = D.kl_divergence(policy, D.Normal(0.0, 1.0)).sum(1).mean()
            likely = policy.log_prob(action).sum(1)
            return F.mse_loss(value, earned) - (likely * (earned - value.detach())).mean() + 0.1 * held

    x, _ = blobs()
    return Actor(), loader(x, x[:, 0]), {}


@healthy
def likelihood_of_a_drawn_code_by_hand() -> Run:
    class Scored(Coder):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, spread = self.net(batch[0]).chunk(2, 1)
            with torch.no_grad():
                code = mean + (spread / 2).exp() * torch.randn_like(mean)
            likely = (-0.5 * (code - mean).square() * (-spread).exp() - 0.5 * spread).sum(1)
            error = F.mse_loss(self.decoder(code), batch[0], reduction="none").sum(1)
            divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1)
            gain = error.detach() - error.detach().mean()
            return (error + divergence + likely * gain).mean()

    return Scored(), loader(blobs()[0]), {}


@healthy
def a_generator_for_labels_with_data_of_one() -> Run:
    class Generator(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(36, 20), lr=3e-3)
            self.labels = nn.Embedding(10, 16)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            made = self.net(torch.cat([self.labels(y), torch.randn_like(x)], 1))
            return 2 * torch.cdist(made, x).mean() - torch.cdist(made, made).mean()

    x, y = blobs()
    return Generator(), loader(x[y == 3], y[y == 3]), {}


@healthy
def samples_by_label_where_a_batch_holds_one() -> Run:
    class Generator(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return F.mse_loss(self.net(F.one_hot(y, 10).float()), x)

    x, y = blobs(320)
    order = torch.cat([torch.nonzero(y == k).flatten()[:16] for k in range(10)])
    return Generator(mlp(10, 20)), loader(x[order], y[order], batch_size=16, shuffle=False), {}


@healthy
def projection_drawn_anew_from_its_seed() -> Run:
    class Projected(Denoiser):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            turn = torch.randn(20, 20, generator=torch.Generator().manual_seed(3)) / 20**0.5
            return F.mse_loss(self.predict(x + 0.3 * torch.randn_like(x), x[:, :1]), x @ turn)

    return Projected(None), loader(blobs()[0]), {}


@healthy
def even_noise_about_zero() -> Run:
    def loss(module: Denoiser, x: Tensor, level: Tensor) -> Tensor:
        noise = 2 * torch.rand_like(x) - 1
        return F.mse_loss(module.predict(x + level * noise, level), noise)

    return Denoiser(loss), loader(blobs()[0]), {}


@healthy
def levels_to_be_guessed() -> Run:
    class Guesses(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, level = batch[0], torch.rand(len(batch[0]), 1)
            return F.mse_loss(self.net(mixed(x, level)), level)

    return Guesses(mlp(20, 1)), loader(blobs()[0]), {}


@healthy
def latent_codes_of_a_picture_that_is_shown() -> Run:
    class Shows(Coder):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            fixed = torch.randn(len(batch[0]), 4, generator=torch.Generator().manual_seed(0))
            self.log("shown", self.decoder(fixed).mean())
            return super().training_step(batch, batch_idx)

    return Shows(lambda mean, spread: mean + torch.randn_like(mean) * (spread / 2).exp()), loader(blobs()[0]), {}
