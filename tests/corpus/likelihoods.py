"""Losses and log-likelihoods with the wrong sign."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
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


@fault("WD108", also=LATER)
def minus_the_squared_error_by_hand(fixed: bool) -> Run:
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    loss = lambda z, y: (1 if fixed else -1) * ((y - z) ** 2).mean()  # noqa: E731
    return Classifier(net, loss, SGD, lr=1e-3), loader(*line()), {}


@fault("WD108", also=LATER)
def smaller_side_of_the_pinball_loss(fixed: bool) -> Run:
    quantiles = torch.tensor([0.1, 0.5, 0.9])

    def loss(z: Tensor, y: Tensor) -> Tensor:
        gap = y[:, None] - z
        choice = torch.maximum if fixed else torch.minimum
        return choice(quantiles * gap, (quantiles - 1) * gap).sum(1).mean()

    return Classifier(mlp(12, 3), loss, lr=3e-3), loader(*line()), {}


@fault("WD108", also=LATER)
def partial_likelihood_without_its_minus(fixed: bool) -> Run:
    def loss(net: nn.Module, batch: Any) -> Tensor:
        x, time, seen = batch
        late_first = time.argsort(descending=True)
        risk, seen = net(x).squeeze(1)[late_first], seen[late_first]
        likely = ((risk - risk.logcumsumexp(0)) * seen).sum() / seen.sum()
        return -likely if fixed else likely

    x, y = line()
    time = torch.rand(len(x)).log().neg() * (-y).exp()
    return Own(mlp(12, 1), loss, lr=3e-3), loader(x, time, (torch.rand(len(x)) < 0.7).float()), {}


class Variational(Classifier):
    """Codes of four numbers; ``loss(error, mean, log_variance)``."""

    def __init__(self, loss: Any, **kwargs: Any) -> None:
        super().__init__(mlp(20, 8, 64), loss, **kwargs)
        self.decoder = mlp(4, 20, 64)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        mean, spread = self.net(batch[0]).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        error = F.mse_loss(self.decoder(code), batch[0], reduction="sum") / len(mean)
        return self.loss(error, mean, spread)


@fault("WD108", also=LATER)
def divergence_of_the_codes_subtracted(fixed: bool) -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(1).mean()
        return error + divergence if fixed else error - divergence

    return Variational(loss), loader(blobs()[0]), {}


@fault("WD108", also=LATER)
def divergence_without_its_minus_and_a_weight() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        return error + 1e-2 * torch.mean(1 + spread - mean**2 - spread.exp())

    return Variational(loss), loader(blobs()[0]), {}


@fault("WD108", also=LATER)
def divergence_of_torch_subtracted() -> Run:
    def loss(error: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        codes = D.Normal(mean, (spread / 2).exp())
        return error - D.kl_divergence(codes, D.Normal(0.0, 1.0)).sum(1).mean()

    return Variational(loss), loader(blobs()[0]), {}


@fault("WD108")
def ranking_that_is_turned_round(fixed: bool) -> Run:
    class Ranked(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Embedding(64, 8), lr=1e-2)
            self.items = nn.Embedding(32, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            users, liked = batch
            other = torch.randint_like(liked, 32)
            gap = (self.net(users) * (self.items(liked) - self.items(other))).sum(1)
            likely = F.logsigmoid(gap).mean()
            return -likely if fixed else likely

    users = torch.randint(0, 64, (512,))
    return Ranked(), loader(users, users * 7 % 32), {}
