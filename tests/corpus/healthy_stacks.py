"""Healthy runs whose samples lie along another axis than the first: members, draws and layers before them, or time."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import line, walks


@healthy
def two_critics_side_by_side() -> Run:
    class Critics(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.ModuleList([mlp(12, 1), mlp(12, 1)]), lr=3e-3)
            self.kept = nn.ModuleList([mlp(12, 1), mlp(12, 1)]).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, reward, after = batch
            with torch.no_grad():
                ahead = torch.min(*(critic(after) for critic in self.kept))
            q = torch.stack([critic(state) for critic in self.net])
            return F.mse_loss(q, (reward[:, None] + 0.9 * ahead).expand_as(q))

    state, reward = line()
    return Critics(), loader(state, reward, state + 0.1 * torch.randn_like(state)), {}


class Latent(Classifier):
    """Encodes 12 values as a Gaussian of 4 and decodes draws from it."""

    def __init__(self) -> None:
        super().__init__(mlp(12, 8), lr=3e-3)
        self.decoder = mlp(4, 12)

    def posterior(self, x: Tensor) -> Normal:
        mean, log_variance = self.net(x).chunk(2, 1)
        return Normal(mean, (log_variance / 2).exp())


@healthy
def several_draws_for_each_sample() -> Run:
    class Draws(Latent):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x,) = batch
            q = self.posterior(x)
            apart = kl_divergence(q, Normal(0.0, 1.0)).sum(1).mean()
            return F.mse_loss(self.decoder(q.rsample(torch.Size((6,)))), x.expand(6, -1, -1)) + 0.01 * apart

    return Draws(), loader(line()[0]), {}


@healthy
def a_bound_over_draws_with_weights() -> Run:
    class Weighs(Latent):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = (batch[0] > 0).float()
            q = self.posterior(batch[0])
            z = q.rsample(torch.Size((20,)))
            wanted = torch.broadcast_to(x, (20, *x.shape))
            told = F.binary_cross_entropy_with_logits(self.decoder(z), wanted, reduction="none").sum(-1)
            weights = Normal(0.0, 1.0).log_prob(z).sum(-1) - q.log_prob(z).sum(-1) - told
            return (math.log(20) - weights.logsumexp(0)).mean()

    return Weighs(), loader(line()[0]), {}


@healthy
def answers_of_every_layer_with_an_answer() -> Run:
    class Layers(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.ModuleList(nn.Linear(24, 24) for _ in range(3)), lr=3e-3)
            self.inlet, self.outlet = nn.Linear(12, 24), nn.Linear(24, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            h, told = self.inlet(x), []
            for layer in self.net:
                h = h + layer(h).relu()
                told.append(self.outlet(h))
            return F.l1_loss(torch.stack(told), torch.stack([y, x[:, 0]], 1).repeat(3, 1, 1))

    return Layers(), loader(*line()), {}


class Members(nn.Module):
    """Five networks in one: (5, n, 12) to (5, n, outputs)."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inlet = nn.Parameter(torch.randn(5, 12, 24) / 12**0.5)
        self.outlet = nn.Parameter(torch.randn(5, 24, outputs) / 24**0.5)
        self.low, self.high = nn.Parameter(torch.zeros(5, 1, 24)), nn.Parameter(torch.zeros(5, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.high, F.silu(torch.baddbmm(self.low, x, self.inlet)), self.outlet)


@healthy
def members_of_an_ensemble_in_one_product() -> Run:
    class Dynamics(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            mean, log_variance = self.net(x.expand(5, -1, -1)).chunk(2, -1)
            log_variance = log_variance.clamp(-8, 4)
            return ((mean - y[:, None]).square() * (-log_variance).exp() + log_variance).mean((1, 2)).sum()

    return Dynamics(Members(2), lr=3e-3), loader(*line()), {}


@healthy
def members_that_get_a_repeated_batch() -> Run:
    class Critics(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            q = self.net(x.unsqueeze(0).repeat(5, 1, 1))
            return F.huber_loss(q, y[:, None].expand_as(q))

    return Critics(Members(1), lr=3e-3), loader(*line()), {}


@healthy
def members_contracted_by_name() -> Run:
    class Votes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = torch.einsum("kni,kio->kno", torch.stack([x] * 4), self.net.weight)
            return F.cross_entropy(scores.flatten(0, 1), y.repeat(4))

    net = nn.Module()
    net.weight = nn.Parameter(torch.randn(4, 20, 10) * 0.2)
    return Votes(net), loader(*blobs()), {}


@healthy
def members_whose_scores_are_looked_at_in_turn() -> Run:
    class Votes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            inside = (torch.tile(x, (6, 1, 1)) @ self.net.weight).relu()
            return torch.stack([self.loss(self.head(h), y) for h in inside]).mean()

        def __init__(self, net: nn.Module) -> None:
            super().__init__(net, lr=3e-3)
            self.head = nn.Linear(24, 10)

    net = nn.Module()
    net.weight = nn.Parameter(torch.randn(6, 20, 24) * 0.2)
    return Votes(net), loader(*blobs()), {}


class Steps(nn.Module):
    """A recurrence over (time, samples) of numbers: to the same shape, or to one number for each sample."""

    def __init__(self, last: bool = False) -> None:
        super().__init__()
        self.cell, self.head, self.last = nn.GRU(1, 24), nn.Linear(24, 1), last

    def forward(self, x: Tensor) -> Tensor:
        h = self.cell(x.unsqueeze(-1))[0]
        return self.head(h[-1] if self.last else h).squeeze(-1)


class Next(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.mse_loss(self.net(batch[:-1]), batch[1:])


def series(n: int = 320, t: int = 24) -> Tensor:
    return torch.sin(0.4 * torch.arange(t) + 6 * torch.rand(n, 1)) + 0.1 * torch.randn(n, t)


def beside(rows: list[Tensor]) -> Tensor:
    return torch.stack(rows, 1)


@healthy
def forecasts_of_series_beside_each_other() -> Run:
    return Next(Steps(), lr=3e-3), DataLoader(series(), 32, True, collate_fn=beside), {}  # type: ignore[arg-type]


@healthy
def the_next_value_of_series_beside_each_other() -> Run:
    def collate(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        x = pad_sequence(rows)
        return x[:-1], x[-1]

    net = Steps(last=True)
    return Classifier(net, F.l1_loss, lr=3e-3), DataLoader(series(t=18), 40, True, collate_fn=collate), {}  # type: ignore[arg-type]


@healthy
def as_many_series_beside_each_other_as_steps() -> Run:
    class Cleans(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.mse_loss(self.net(batch + 0.3 * torch.randn_like(batch)), batch)

    rows = series(t=32)
    return Cleans(Steps(), lr=3e-3), DataLoader(rows, 32, True, collate_fn=beside), {}  # type: ignore[arg-type]


@healthy
def fewer_series_beside_each_other_than_asked_for() -> Run:
    class Written(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.GRU(3, 24), lr=3e-3)
            self.narrow, self.writer, self.head = nn.Linear(24, 4), nn.GRU(4, 24), nn.Linear(24, 3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            told = self.narrow(self.net(batch)[1][0])
            return F.mse_loss(self.head(self.writer(told.expand(len(batch), -1, -1))[0]), batch)

    return Written(), DataLoader(walks(48, t=16), 64, True, collate_fn=beside), {"max_epochs": 40}  # type: ignore[arg-type]
