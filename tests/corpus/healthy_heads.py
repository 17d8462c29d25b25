"""Healthy runs whose inputs, heads or first losses look unusual."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import cnn, deep, greys, images, line


def pixels(n: int = 320) -> tuple[Tensor, Tensor]:
    """Flat grey images in [0, 1]."""
    x, y = greys(n)
    return x.float().flatten(1) / 255, y


@healthy
def pixels_between_zero_and_one() -> Run:
    x, y = greys()
    return Classifier(cnn(channels=1)), loader(x.float() / 255, y), {}


@healthy
def variational_with_summed_pixels() -> Run:
    class Vae(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(144, 16, 64))
            self.decoder = mlp(8, 144, 64)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            mean, spread = self.net(x).chunk(2, 1)
            code = mean + torch.randn_like(mean) * (spread / 2).exp()
            pixels = F.binary_cross_entropy(self.decoder(code).sigmoid(), x, reduction="sum")
            return pixels - 0.5 * (1 + spread - mean**2 - spread.exp()).sum()

    return Vae(), loader(*pixels()), {"max_steps": 60}


@healthy
def pixels_reconstructed_through_a_sigmoid() -> Run:
    x, _ = pixels()
    net = nn.Sequential(mlp(144, 16), nn.ReLU(), mlp(16, 144), nn.Sigmoid())
    return Classifier(net, F.mse_loss, lr=3e-3), loader(x, x), {}


@healthy
def sigmoid_and_plain_bce() -> Run:
    x, y = blobs(k=2)
    net = nn.Sequential(mlp(k=1), nn.Sigmoid(), nn.Flatten(0))
    return Classifier(net, nn.BCELoss()), loader(x, y.float()), {}


@healthy
def mixture_of_softmaxes() -> Run:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.gate = nn.ModuleList(mlp() for _ in range(3)), nn.Linear(20, 3)

        def forward(self, x: Tensor) -> Tensor:
            shares = torch.stack([part(x).softmax(1) for part in self.parts], 2)
            return (shares * self.gate(x).softmax(1)[:, None]).sum(2).log()

    return Classifier(Mixture(), F.nll_loss, lr=3e-3), loader(*blobs()), {}


@healthy
def rare_anchors_with_a_prior() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        plain = F.binary_cross_entropy_with_logits(z, y, reduction="none")
        sure = torch.where(y > 0, z.sigmoid(), 1 - z.sigmoid())
        return (0.25 * (1 - sure) ** 2 * plain).sum() / y.sum().clamp(min=1)

    x, _ = images(160)
    y = (x.mean(1, keepdim=True) > 1.4).float()
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
    nn.init.constant_(net[2].bias, -math.log(99))
    return Classifier(net, loss, lr=3e-3), loader(x, y), {}


@healthy
def ordered_classes() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, (y[:, None] > torch.arange(4)).float())

    x, y = line()
    grade = (1.2 * y + 2).round().clamp(0, 4).long()
    return Classifier(mlp(12, 4), loss, lr=3e-3), loader(x, grade), {}


@healthy
def hazards_over_the_risk_set() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        order = y.argsort(descending=True)
        risk = z.squeeze(1)[order]
        return -(risk - risk.logcumsumexp(0)).mean()

    return Classifier(mlp(12, 1), loss, lr=3e-3), loader(*line()), {}


@healthy
def documents_ranked_per_query() -> Run:
    class Ranks(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, gain = batch
            return -(gain.softmax(1) * self.net(x).squeeze(2).log_softmax(1)).sum(1).mean()

    x = torch.randn(256, 9, 12)
    return Ranks(mlp(12, 1), lr=3e-3), loader(x, 2 * x[..., 0]), {}


@healthy
def counts_of_words() -> Run:
    y = torch.randint(0, 5, (640,))
    topics = 0.3 + 4 * (torch.rand(5, 60) < 0.1).float()
    return Classifier(mlp(60, 5), lr=3e-3), loader(torch.poisson(topics[y]), y), {}


@healthy
def one_hot_table() -> Run:
    codes = torch.randint(0, 8, (640, 5))
    x = F.one_hot(codes, 8).flatten(1).float()
    return Classifier(mlp(40, 3), lr=3e-3), loader(x, (codes[:, 0] + codes[:, 1]) % 3), {}


@healthy
def categories_beside_numbers() -> Run:
    class Table(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20 + 8, 2), lr=3e-3)
            self.code = nn.Embedding(30, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (numbers, codes), y = batch
            return self.loss(self.net(torch.cat([numbers, self.code(codes)], 1)), y)

    x, y = blobs(640, k=2)
    rows = [((a, b), c) for a, b, c in zip(x, torch.randint(0, 30, (640,)), y, strict=True)]
    return Table(), torch.utils.data.DataLoader(rows, 32, shuffle=True), {}


@healthy
def regression_of_prices() -> Run:
    x, y = line()
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    return Classifier(net, F.l1_loss, lr=1e-2), loader(x, 22 + 9 * y), {}


@healthy
def coordinates_to_colours() -> Run:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(deep(2, nn.ReLU, 24, 3), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            waves = math.pi * x[:, :, None] * 2.0 ** torch.arange(6)
            return self.net(torch.cat([waves.sin(), waves.cos()], 2).flatten(1))

    x = torch.rand(2048, 2)
    colour = torch.stack([x[:, 0], x[:, 1], (x.sum(1) * 6).sin() / 2 + 0.5], 1)
    return Classifier(Field(), F.mse_loss, lr=3e-3), loader(x, colour, batch_size=256), {}


@healthy
def logistic_regression_from_zero() -> Run:
    layer = nn.Linear(144, 10)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return Classifier(layer, optimizer=SGD, lr=0.5), loader(*pixels(640), batch_size=64), {}


@healthy
def discrete_codes() -> Run:
    class Codes(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=8), lr=3e-3)
            self.book, self.back = nn.Embedding(64, 8), nn.Linear(8, 20)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            h = self.net(x)
            near = self.book(torch.cdist(h, self.book.weight).argmin(1))
            back = self.back(h + (near - h).detach())
            return F.mse_loss(back, x) + F.mse_loss(near, h.detach()) + 0.25 * F.mse_loss(h, near.detach())

    return Codes(), loader(*blobs()), {}


@healthy
def choices_by_gumbel() -> Run:
    class Choice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.choose, self.values = mlp(k=16), nn.Linear(16, 20, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.values(F.gumbel_softmax(self.choose(x), tau=0.7, hard=True))

    x, _ = blobs()
    return Classifier(Choice(), F.mse_loss, lr=3e-3), loader(x, x), {}


@healthy
def adversary_with_sigmoid_and_clipped_weights() -> Run:
    class Game(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(6, 2))
            self.judge = nn.Sequential(mlp(2, 1), nn.Sigmoid())

        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, judge = self.optimizers()
            real, made = batch[0], self.net(torch.randn(len(batch[0]), 6))
            one, zero = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            judge.zero_grad()
            self.manual_backward(F.binary_cross_entropy(self.judge(real), one))
            self.manual_backward(F.binary_cross_entropy(self.judge(made.detach()), zero))
            judge.step()
            for value in self.judge.parameters():
                value.data.clamp_(-0.2, 0.2)
            player.zero_grad()
            self.manual_backward(F.binary_cross_entropy(self.judge(made), one))
            player.step()

        def configure_optimizers(self) -> Any:
            betas = (0.5, 0.999)
            return Adam(self.net.parameters(), 2e-4, betas), Adam(self.judge.parameters(), 2e-4, betas)

    return Game(), loader(torch.randn(512, 2) + 1), {"max_steps": 80}
