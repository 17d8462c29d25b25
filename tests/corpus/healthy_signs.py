"""Objectives that rightly contain a likelihood of either sign, or minus a loss."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .likelihoods import Own, Variational
from .parts import line


@healthy
def actor_with_a_temperature() -> Run:
    class Soft(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=4))
            self.critic = mlp(22, 1).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, spread = self.net(batch[0]).chunk(2, 1)
            policy = D.Normal(mean, F.softplus(spread) + 1e-3)
            act = policy.rsample()
            likely = policy.log_prob(act).sum(1)
            return (0.2 * likely - self.critic(torch.cat([batch[0], act.tanh()], 1)).squeeze(1)).mean()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3)

    return Soft(), loader(torch.randn(512, 20)), {}


@healthy
def likelihood_under_a_maximising_optimizer() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        return D.Categorical(logits=net(batch[0])).log_prob(batch[1]).mean()

    return Own(mlp(), loss, Adam, maximize=True), loader(*blobs()), {}


@healthy
def sampled_divergence_and_reconstruction() -> Run:
    def loss(net: Any, batch: Any) -> Tensor:
        mean, spread = net[0](batch[0]).chunk(2, 1)
        near = D.Normal(mean, F.softplus(spread) + 1e-2)
        z = near.rsample()
        gap = (near.log_prob(z) - D.Normal(0.0, 1.0).log_prob(z)).sum(1)
        return (0.1 * gap - D.Normal(net[1](z), 0.5).log_prob(batch[0]).sum(1)).mean()

    return Own(nn.Sequential(nn.Linear(12, 8), mlp(4, 12)), loss), loader(line()[0]), {}


@healthy
def stored_actions_weighted_by_their_return() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, action, gain = batch
        return -(D.Categorical(logits=net(x)).log_prob(action) * gain).mean()

    x, y = blobs(k=4)
    return Own(mlp(k=4), loss), loader(x, y, (y < 2).float()), {}


@healthy
def stored_actions_weighted_by_their_cost() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, action, cost = batch
        return (F.log_softmax(net(x), -1).gather(1, action[:, None]).squeeze(1).clamp(min=-4) * cost).mean()

    x, y = blobs(k=4)
    return Own(mlp(k=4), loss), loader(x, y, 0.5 + torch.rand(len(y))), {}


@healthy
def stored_actions_near_an_older_policy() -> Run:
    class Near(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=4))
            self.older = mlp(k=4).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, action, gain = batch
            likely = D.Categorical(logits=self.net(x)).log_prob(action)
            before = D.Categorical(logits=self.older(x)).log_prob(action)
            bonus, gap = 0.01 * likely.mean(), 0.1 * (likely - before).mean()
            return bonus + gap - ((likely - before).exp() * gain).mean()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3)

    x, y = blobs(k=4)
    return Near(), loader(x, y, torch.randn(len(y))), {}


@healthy
def outliers_are_made_unlikely() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        def likely(x: Tensor) -> Tensor:
            mean, spread = net(x[:, :6]).chunk(2, 1)
            return D.Normal(mean, F.softplus(spread) + 0.1).log_prob(x[:, 6:]).clamp(min=-20).mean()

        return 0.1 * likely(batch[1]) - likely(batch[0])

    x, _ = line()
    return Own(mlp(6, 12), loss), loader(x, 4 * torch.rand(len(x), 12)), {}


@healthy
def features_that_hide_the_domain() -> Run:
    class Hidden(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.label, self.domain = nn.Linear(16, 10), nn.Linear(16, 2)
            self.domain.requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, where = batch
            h = self.net(x).relu()
            return F.cross_entropy(self.label(h), y) - 0.05 * F.cross_entropy(self.domain(h), where)

        def configure_optimizers(self) -> Any:
            return Adam([*self.net.parameters(), *self.label.parameters()], 1e-3)

    x, y = blobs()
    return Hidden(), loader(x, y, torch.randint(0, 2, (len(x),))), {}


@healthy
def minimax_generator() -> Run:
    class Minimax(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(6, 2))
            self.judge = mlp(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            (real,) = batch
            made, judged = self.optimizers()
            fake = self.net(torch.randn(len(real), 6))
            both = self.judge(torch.cat([real, fake.detach()]))
            truth = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
            judged.zero_grad()
            self.manual_backward(F.binary_cross_entropy_with_logits(both, truth))
            judged.step()
            made.zero_grad()
            self.manual_backward(-F.binary_cross_entropy_with_logits(self.judge(fake), torch.zeros(len(fake), 1)))
            made.step()

        def configure_optimizers(self) -> Any:
            return [Adam(self.net.parameters(), 1e-3), Adam(self.judge.parameters(), 1e-3)]

    return Minimax(), loader(torch.randn(256, 2) * 0.3 + 1), {}


@healthy
def scores_of_a_generative_classifier() -> Run:
    def loss(net: Any, batch: Any) -> Tensor:
        x, y = batch
        joint = D.Independent(D.Normal(net.weight, 1.0), 1).log_prob(x[:, None]) / 20
        return joint.logsumexp(1).mean() - joint.gather(1, y[:, None]).mean()

    return Own(nn.Linear(20, 10, bias=False), loss, lr=1e-2), loader(*blobs()), {}


@healthy
def sure_of_unlabelled_samples() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        log_p = net(x).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1).mean()
        return F.nll_loss(log_p[:16], y[:16]) + 0.1 * entropy

    return Own(mlp(), loss), loader(*blobs(), drop_last=True), {}


@healthy
def likelihood_divided_by_the_count_that_is_masked() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        seen = y > 0
        likely = net(x).log_softmax(-1)[torch.arange(len(y)), y]
        return -(likely * seen).sum() / seen.sum()

    return Own(mlp(), loss, lr=3e-3), loader(*blobs()), {}


@healthy
def bound_maximised_by_its_negative() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        divergence = 0.5 * (mean**2 + spread.exp() - spread - 1).sum(1).mean()
        return -(-error - divergence)

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def divergence_held_at_a_capacity() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
        return error + 10 * (2.0 - divergence).abs()

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def free_bits_of_a_divergence() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).mean(0)
        return error + divergence.clamp(min=0.1).sum()

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def weight_of_the_divergence_still_zero() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        return error - 0.0 * 0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def gaussian_likelihood_by_hand() -> Run:
    class Heteroscedastic(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, spread = self.net(batch[0]).unbind(1)
            return 0.5 * (spread + (batch[1] - mean).square() / spread.exp()).mean()

    return Heteroscedastic(mlp(12, 2)), loader(*line()), {}


@healthy
def information_kept_in_the_code() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        entropy = 0.5 * spread.sum(1).mean()
        return error + 0.01 * mean.square().sum(1).mean() - 0.01 * entropy

    return Variational(loss), loader(blobs()[0]), {}


@healthy
def judge_that_is_fixed_and_told_the_opposite() -> Run:
    class Moved(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 20))
            self.judge = mlp(20, 1).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            made = self.net(batch[0])
            return F.logsigmoid(-self.judge(made)).mean() + F.mse_loss(made, batch[0])

    return Moved(), loader(*blobs()), {}


@healthy
def entropies_of_two_answers_from_their_logarithms() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        target = F.one_hot(y, 10).bool()
        return -F.logsigmoid(z[target]).mean() - F.logsigmoid(-z[~target]).mean()

    return Classifier(loss=loss), loader(*blobs()), {}
