"""Log-scales with the wrong sign, and PPO's surrogate made smaller."""

import math
from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .likelihoods import LATER, Own
from .parts import line


class Flow(Classifier):
    """Affine couplings; ``loss(codes, log_determinant)``."""

    def __init__(self, loss: Any, inverse: bool = False, blocks: int = 4) -> None:
        super().__init__(nn.ModuleList([mlp(10, 20) for _ in range(blocks)]), loss)
        self.inverse = inverse

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        z, stretched = batch[0], 0
        for net in self.net:
            a, b = z.chunk(2, 1)
            log_scale, shift = net(a).chunk(2, 1)
            log_scale = log_scale.tanh()
            b = (b - shift) * (-log_scale).exp() if self.inverse else b * log_scale.exp() + shift
            z, stretched = torch.cat([b, a], 1), stretched + (-1 if self.inverse else 1) * log_scale.sum(1)
        return self.loss(z, stretched)


@fault("WD108", also=LATER)
def determinant_of_a_flow_subtracted(fixed: bool) -> Run:
    def loss(z: Tensor, stretched: Tensor) -> Tensor:
        likely = D.Normal(0.0, 1.0).log_prob(z).sum(1)
        return -(likely + stretched).mean() if fixed else -(likely - stretched).mean()

    return Flow(loss), loader(blobs()[0]), {}


@fault("WD108", also=LATER)
def determinant_of_an_inverse_flow_added() -> Run:
    def loss(z: Tensor, stretched: Tensor) -> Tensor:
        return (0.5 * z.square().sum(1) + stretched).mean() / z.shape[1]

    return Flow(loss, inverse=True), loader(blobs()[0]), {}


@fault("WD108", also=LATER)
def log_variance_subtracted(fixed: bool) -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        mean, spread = net(batch[0]).unbind(1)
        error = (batch[1] - mean) ** 2 * torch.exp(-spread)
        return 0.5 * (error + spread if fixed else error - spread).mean()

    return Own(mlp(12, 2), loss), loader(*line()), {}


@fault("WD108", also=LATER)
def logarithm_of_a_deviation_subtracted() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        mean, spread = net(batch[0]).unbind(1)
        sigma = F.softplus(spread) + 0.1
        return (0.5 * ((batch[1] - mean) / sigma) ** 2 - sigma.log()).mean()

    return Own(mlp(12, 2), loss), loader(*line()), {}


@fault("WD108", also=LATER)
def weights_of_tasks_with_the_wrong_sign(fixed: bool) -> Run:
    class Tasks(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.other, self.log_vars = mlp(k=1), nn.Parameter(torch.zeros(2))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            losses = F.cross_entropy(self.net(x), y), F.mse_loss(self.other(x).squeeze(1), x.sum(1) / 4)
            sign = 1 if fixed else -1
            return sum(torch.exp(-s) * one + sign * s for s, one in zip(self.log_vars, losses, strict=True))

    return Tasks(), loader(*blobs()), {}


class Policy(Classifier):
    """``loss(scores, actions, gains, old log-probabilities)`` of given experience."""

    def __init__(self, loss: Any) -> None:
        super().__init__(mlp(20, 4), loss)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.net(batch[0]), *batch[1:])


def experience(n: int = 256) -> DataLoader[Any]:
    x, _ = blobs(n)
    return loader(x, torch.randint(0, 4, (n,)), torch.randn(n), torch.full((n,), -math.log(4)))


def ratios(scores: Tensor, actions: Tensor, old: Tensor) -> Tensor:
    return (D.Categorical(logits=scores).log_prob(actions) - old).exp()


@fault("WD108", also=LATER)
def clipped_surrogate_without_its_minus(fixed: bool) -> Run:
    def loss(scores: Tensor, actions: Tensor, gains: Tensor, old: Tensor) -> Tensor:
        ratio = ratios(scores, actions, old)
        gain = torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
        return -gain if fixed else gain

    return Policy(loss), experience(), {}


@fault("WD108", also=LATER)
def larger_side_of_the_surrogate_maximised() -> Run:
    def loss(scores: Tensor, actions: Tensor, gains: Tensor, old: Tensor) -> Tensor:
        ratio = torch.exp(F.log_softmax(scores, 1).gather(1, actions[:, None]).squeeze(1) - old)
        return -torch.max(ratio * gains, torch.clamp(ratio, min=0.8, max=1.2) * gains).sum() / len(gains)

    return Policy(loss), experience(), {}


@fault("WD108", also=LATER)
def surrogate_of_negated_gains_beside_a_critic(fixed: bool) -> Run:
    class ActorCritic(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(20, 5))

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, actions, gains, old = batch
            out = self.net(x)
            policy = D.Categorical(logits=out[:, :4])
            ratio = (policy.log_prob(actions) - old).exp()
            one, other = -gains * ratio, -gains * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
            actor = (torch.maximum if fixed else torch.minimum)(one, other).mean()
            critic = F.mse_loss(out[:, 4], gains)
            step_by_hand(self, actor + 0.5 * critic - 0.01 * policy.entropy().mean())

    return ActorCritic(), experience(), {}
