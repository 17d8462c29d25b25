"""Signs of losses and log-likelihoods; objectives that rightly contain a likelihood of either sign."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault, healthy
from .parts import line


class Own(Classifier):
    """``self.loss(net, batch)``."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.net, batch)


LATER = ("WD144", "WD213", "WD317", "WD142", "WD211", "WD303", "WD202", "WD143", "WD214", "WD316")


@fault("WD108", also=LATER)
def gaussian_likelihood_without_its_minus(fixed: bool) -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        mean, spread = net(batch[0]).chunk(2, 1)
        likely = D.Normal(mean.squeeze(1), F.softplus(spread).squeeze(1) + 1e-2).log_prob(batch[1])
        return -likely.mean() if fixed else likely.mean()

    return Own(mlp(12, 2), loss, lr=3e-3), loader(*line()), {}


@fault("WD108", also=LATER)
def categorical_likelihood_beside_a_penalty(fixed: bool) -> Run:
    class Penalised(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            policy = D.Categorical(logits=self.net(batch["seen"]))
            likely = policy.log_prob(batch["done"]).sum() / len(batch["done"])
            decay = 1e-3 * sum(p.square().sum() for p in self.net.parameters())
            return {"loss": decay - likely if fixed else likely + decay}

    x, y = blobs(k=4)
    rows = [{"seen": a, "done": b} for a, b in zip(x, y, strict=True)]
    return Penalised(mlp(k=4), optimizer=SGD, lr=0.05), torch.utils.data.DataLoader(rows, 16, shuffle=True), {}


@fault("WD108", also=LATER)
def whole_bound_with_the_wrong_sign(fixed: bool) -> Run:
    class Bound(Manual):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.net = nn.Linear(10, 8), mlp(4, 10)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            (x,) = batch
            mean, log_spread = self.encode(x).chunk(2, -1)
            near = D.Normal(mean, log_spread.exp())
            gap = D.kl_divergence(near, D.Normal(0.0, 1.0)).sum(-1)
            likely = D.Independent(D.Bernoulli(logits=self.net(near.rsample())), 1).log_prob(x)
            bound = (likely - gap).mean()
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(-bound if fixed else bound)
            optimizer.step()

    return Bound(), loader((torch.rand(256, 10) < torch.linspace(0.1, 0.9, 10)).float()), {}


@fault("WD108", also=LATER)
def labels_picked_without_a_minus(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return (-1 if fixed else 1) * z.log_softmax(-1).gather(1, y[:, None]).mean()

    return Classifier(loss=loss, lr=3e-3), loader(*blobs()), {}


@fault("WD108", also=LATER)
def indexed_log_probabilities_are_minimised() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        table = torch.log(torch.softmax(net(x), 1) + 1e-8)
        return table[torch.arange(len(y)), y].sum() / len(y)

    return Own(mlp(k=6), loss, SGD, lr=0.02), loader(*blobs(k=6), batch_size=16), {}


@fault("WD108", also=LATER)
def one_hot_products_are_minimised(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        each = (F.one_hot(y, z.shape[1]).float() * F.log_softmax(z, 1)).sum(1)
        return (-each if fixed else each).mean()

    return Classifier(mlp(k=5), loss), loader(*blobs(k=5)), {}


@fault("WD108", also=LATER)
def binary_likelihood_by_hand_is_minimised(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(z.squeeze(1)).clamp(1e-6, 1 - 1e-6)
        likely = y * torch.log(p) + (1 - y) * torch.log(1 - p)
        return -likely.mean() if fixed else likely.mean()

    x, y = blobs(k=2)
    return Classifier(mlp(k=1), loss), loader(x, y.float()), {}


@fault("WD108", also=LATER)
def mixture_likelihood_is_minimised() -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        weight, mean, spread = net(batch[0]).chunk(3, 1)
        parts = D.Normal(mean, F.softplus(spread) + 0.1)
        return D.MixtureSameFamily(D.Categorical(logits=weight), parts).log_prob(batch[1]).mean()

    return Own(mlp(12, 9), loss), loader(*line()), {}


@fault("WD108", also=LATER)
def minus_the_poisson_loss(fixed: bool) -> Run:
    x, y = line()
    counts = torch.poisson((0.7 * y + 1).exp())
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    loss = lambda z, n: (1 if fixed else -1) * F.poisson_nll_loss(z, n)  # noqa: E731
    return Classifier(net, loss), loader(x, counts), {}


@fault("WD108", also=LATER)
def minus_the_gaussian_loss_and_a_term_on_weights() -> Run:
    def loss(net: Any, batch: Any) -> Tensor:
        mean, spread = net(batch[0]).unbind(1)
        fit = F.gaussian_nll_loss(mean, batch[1], F.softplus(spread) + 0.05)
        return 1e-4 * net[0].weight.abs().sum() - 0.5 * fit

    return Own(mlp(12, 2), loss), loader(*line()), {}


@fault("WD108", also=LATER)
def one_minus_the_squared_error() -> Run:
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    return Classifier(net, lambda z, y: 1 - F.mse_loss(z, y), SGD, lr=1e-3), loader(*line()), {}


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
