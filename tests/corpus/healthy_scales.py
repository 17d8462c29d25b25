"""Healthy log-scales, learned variances and clipped ratios."""

import math
from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .likelihoods import Own, Variational
from .parts import line
from .scales import Flow, Policy, experience, ratios


@healthy
def inverse_of_a_flow_by_hand() -> Run:
    return Flow(lambda z, s: (0.5 * z.square().sum(1) - s).mean(), inverse=True), loader(blobs()[0]), {}


@healthy
def samples_of_a_flow_under_a_known_density() -> Run:
    class Reverse(Flow):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step([torch.randn_like(batch[0])], batch_idx)

    def loss(x: Tensor, stretched: Tensor) -> Tensor:
        return (0.5 * ((x - 2.0) / 0.5).square().sum(1) - stretched).mean()

    return Reverse(loss), loader(torch.zeros(256, 20)), {}


@healthy
def scales_of_a_flow_by_a_sigmoid_and_masks() -> Run:
    class Masked(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            z, stretched = batch[0], torch.zeros(len(batch[0]))
            for i, net in enumerate(self.net):
                mask = ((torch.arange(z.shape[1]) + i) % 2).float()
                raw, shift = net(z * mask).chunk(2, 1)
                scale = torch.sigmoid(raw + 2)
                z = mask * z + (1 - mask) * (z * scale + shift)
                stretched = stretched + ((1 - mask) * scale.log()).sum(1)
            return -(D.Normal(0.0, 1.0).log_prob(z).sum(1) + stretched).mean()

    return Masked(nn.ModuleList([mlp(20, 40) for _ in range(3)])), loader(blobs()[0]), {}


@healthy
def activations_normalised_by_a_learned_scale() -> Run:
    class Normalised(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale, self.shift = nn.Parameter(torch.zeros(20)), nn.Parameter(torch.zeros(20))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            z = (batch[0] + self.shift) * self.log_scale.exp()
            return 0.5 * z.pow(2).sum(1).mean() - self.log_scale.sum() + F.cross_entropy(self.net(z), batch[1])

    return Normalised(), loader(*blobs()), {}


@healthy
def laplace_likelihood_by_hand() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        mean, log_width = net(batch[0]).unbind(1)
        return ((batch[1] - mean).abs() / log_width.exp() + log_width).mean()

    return Own(mlp(12, 2), loss), loader(*line()), {}


@healthy
def variance_of_the_data_and_a_prior_on_it() -> Run:
    class Fitted(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(mlp(12, 1), nn.Flatten(0)))
            self.log_sigma = nn.Parameter(torch.zeros(()))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            likely = D.Normal(self.net(batch[0]), self.log_sigma.exp()).log_prob(batch[1]).mean()
            prior = D.HalfNormal(1.0).log_prob(self.log_sigma.exp()) + self.log_sigma
            return -likely - prior / 512

    return Fitted(), loader(*line()), {}


@healthy
def weights_of_tasks_by_their_deviation() -> Run:
    class Tasks(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.other, self.sigma = mlp(k=1), nn.Parameter(torch.ones(2))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            losses = torch.stack([F.cross_entropy(self.net(x), y), F.mse_loss(self.other(x)[:, 0], x.sum(1) / 4)])
            return (losses / (2 * self.sigma**2) + self.sigma.log()).sum()

    return Tasks(), loader(*blobs()), {}


@healthy
def evidence_of_a_regression() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        mean, *raw = net(batch[0]).unbind(1)
        nu, alpha, beta = (F.softplus(r) + 0.01 for r in raw)
        alpha, y = alpha + 1, batch[1]
        both = 2 * beta * (1 + nu)
        nll = (
            0.5 * torch.log(math.pi / nu) - alpha * both.log() + (alpha + 0.5) * torch.log(nu * (y - mean) ** 2 + both)
        )
        nll = nll + torch.lgamma(alpha) - torch.lgamma(alpha + 0.5)
        return (nll + 0.01 * (y - mean).abs() * (2 * nu + alpha)).mean()

    return Own(mlp(12, 4), loss), loader(*line()), {}


@healthy
def codes_held_by_their_size_and_entropy() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        code = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return error + 0.1 * (0.5 * code.square() - 0.5 * spread).sum(1).mean()

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def squashed_actions_with_a_small_penalty() -> Run:
    class Actor(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(20, 6))
            self.critic = mlp(23, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, gain = batch
            actor, critic = self.optimizers()
            mean, log_std = self.net(x).chunk(2, 1)
            std = log_std.clamp(-4, 1).exp()
            raw = mean + std * torch.randn_like(std)
            action = raw.tanh()
            likely = (-0.5 * ((raw - mean) / std) ** 2 - log_std).sum(1) - torch.log(1 - action**2 + 1e-6).sum(1)
            value = self.critic(torch.cat([x, action], 1)).squeeze(1)
            actor.zero_grad()
            self.manual_backward((0.2 * likely - value).mean() + 1e-3 * raw.square().mean())
            actor.step()
            critic.zero_grad()
            value = self.critic(torch.cat([x, action.detach()], 1)).squeeze(1)
            self.manual_backward(F.mse_loss(value, gain - action.detach().square().sum(1)))
            critic.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.critic)]

    x, _ = blobs()
    return Actor(), loader(x, x[:, 0]), {}


@healthy
def surrogate_of_a_cost() -> Run:
    def loss(scores: Tensor, actions: Tensor, costs: Tensor, old: Tensor) -> Tensor:
        ratio = ratios(scores, actions, old)
        return torch.max(ratio * costs, ratio.clamp(0.8, 1.2) * costs).mean()

    return Policy(loss), experience(), {}


@healthy
def surrogate_clipped_on_both_sides() -> Run:
    def loss(scores: Tensor, actions: Tensor, gains: Tensor, old: Tensor) -> Tensor:
        ratio = ratios(scores, actions, old)
        gain = torch.min(ratio * gains, ratio.clip(0.8, 1.2) * gains)
        return -torch.where(gains < 0, torch.max(gain, 3 * gains), gain).mean()

    return Policy(loss), experience(), {}


@healthy
def surrogate_and_a_clipped_critic() -> Run:
    def loss(out: Tensor, actions: Tensor, gains: Tensor, old: Tensor) -> Tensor:
        scores, value = out, out.mean(1)
        ratio = ratios(scores, actions, old)
        near = (value.detach() * 0.9) + (value - value.detach() * 0.9).clamp(-0.2, 0.2)
        critic = torch.max((value - gains) ** 2, (near - gains) ** 2).mean()
        gain = torch.minimum(ratio * gains, torch.clamp(ratio, 0.8, 1.2) * gains)
        return 0.5 * critic - gain.mean()

    return Policy(loss), experience(), {}
