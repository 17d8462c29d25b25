"""Healthy runs with losses that are not one cross entropy."""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import Recurrent, cnn, deep, images, line, text, tones


@healthy
def segmentation_with_void_pixels() -> Run:
    x, _ = images(160)
    y = (1.2 * x.mean(1) + 1.5).round().clamp(0, 3).long()
    y[torch.rand(y.shape) < 0.2] = 255
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1))
    return Classifier(net, nn.CrossEntropyLoss(ignore_index=255), lr=3e-3), loader(x, y, batch_size=16), {}


@healthy
def dice_and_cross_entropy() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        share = z.softmax(1)[:, 1]
        overlap = 2 * (share * y).sum((1, 2)) + 1
        return F.cross_entropy(z, y) + (1 - overlap / (share.sum((1, 2)) + y.sum((1, 2)) + 1)).mean()

    x, _ = images(160)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1))
    return Classifier(net, loss, lr=3e-3), loader(x, (x.mean(1) > 0.4).long()), {}


@healthy
def soft_dice_alone() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        share = z.sigmoid()
        return 1 - (2 * (share * y).sum() + 1) / (share.sum() + y.sum() + 1)

    x, _ = images(160)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
    return Classifier(net, loss, lr=3e-3), loader(x, (x.mean(1, keepdim=True) > 0.4).float()), {}


@healthy
def boxes_and_classes() -> Run:
    class Detector(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            image, (kinds, boxes) = batch["image"], batch["target"]
            out = self.net(image)
            found = kinds > 0
            kind = F.cross_entropy(out[:, :4], kinds)
            place = F.smooth_l1_loss(out[found, 4:], boxes[found], reduction="sum") / found.sum().clamp(min=1)
            self.log_dict({"kind": kind, "place": place})
            return {"loss": kind + 5 * place}

    x, y = images(k=4)
    boxes = torch.rand(4, 4)[y]
    rows = [{"image": a, "target": (b, c)} for a, b, c in zip(x, y, boxes, strict=True)]
    return Detector(cnn(8), lr=3e-3), torch.utils.data.DataLoader(rows, 32, shuffle=True), {}


@healthy
def noise_prediction() -> Run:
    class Diffusion(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x,) = batch
            t = torch.randint(0, 100, (len(x),))
            keep = torch.cos(t / 100 * math.pi / 2)[:, None]
            noise = torch.randn_like(x)
            noisy = keep * x + (1 - keep**2).sqrt() * noise
            return F.mse_loss(self.net(torch.cat([noisy, t[:, None] / 100], 1)), noise)

    return Diffusion(deep(2, nn.SiLU, 3, 2)), loader(torch.randn(512, 2) * 0.1 + 1), {}


@healthy
def coupling_flow() -> Run:
    class Flow(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (0.05 * batch[0]).chunk(2, 1)
            total = 0
            for net in self.nets:
                scale, shift = net(a).chunk(2, 1)
                a, b = b * scale.tanh().exp() + shift, a
                total = total + scale.tanh().sum(1)
            z = torch.cat([a, b], 1)
            return -(torch.distributions.Normal(0.0, 0.1).log_prob(z).sum(1) + total).mean()

        def __init__(self) -> None:
            super().__init__(nn.Identity())
            self.nets = nn.ModuleList(mlp(5, 10) for _ in range(4))

    return Flow(), loader(torch.randn(512, 10)), {}


@healthy
def mixture_density() -> Run:
    class Mixture(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            weight, mean, spread = self.net(x).chunk(3, 1)
            parts = torch.distributions.Normal(mean, F.softplus(spread) + 1e-3).log_prob(y[:, None])
            return -(parts + weight.log_softmax(1)).logsumexp(1).mean()

    return Mixture(mlp(12, 12), lr=3e-3), loader(*line()), {}


@healthy
def critic_with_gradient_penalty() -> Run:
    class Wasserstein(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(6, 2))
            self.critic = mlp(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            made, judge = self.optimizers()
            (real,) = batch
            fake = self.net(torch.randn(len(real), 6))
            mix = torch.lerp(real, fake.detach(), torch.rand(len(real), 1)).requires_grad_()
            (slope,) = torch.autograd.grad(self.critic(mix).sum(), mix, create_graph=True)
            penalty = (slope.norm(dim=1) - 1).square().mean()
            judge.zero_grad()
            self.manual_backward(self.critic(fake.detach()).mean() - self.critic(real).mean() + 10 * penalty)
            judge.step()
            if batch_idx % 3 == 2:
                made.zero_grad()
                self.manual_backward(-self.critic(fake).mean())
                made.step()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3, (0.5, 0.9)), Adam(self.critic.parameters(), 1e-3, (0.5, 0.9))

    return Wasserstein(), loader(torch.randn(512, 2) + 1), {"max_steps": 60}


@healthy
def connectionist_temporal_classification() -> Run:
    class Frames(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(8, 24, batch_first=True, bidirectional=True), nn.Linear(48, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0]).log_softmax(2).transpose(0, 1)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        n = len(y)
        return F.ctc_loss(z, y[:, None].expand(n, 3) + 1, torch.full((n,), len(z)), torch.full((n,), 3))

    return Classifier(Frames(), loss, lr=3e-3), loader(*tones()), {}


@healthy
def tasks_with_learned_weights() -> Run:
    class Tasks(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU()), lr=3e-3)
            self.kind, self.value = nn.Linear(32, 10), nn.Linear(32, 1)
            self.weights = nn.Parameter(torch.zeros(2))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            h = self.net(x)
            parts = torch.stack([F.cross_entropy(self.kind(h), y), F.mse_loss(self.value(h).squeeze(1), x[:, 0])])
            return ((-self.weights).exp() * parts + self.weights).sum()

    return Tasks(), loader(*blobs()), {}


@healthy
def masked_tokens() -> Run:
    class Masks(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (ids,) = batch
            hidden = torch.rand(ids.shape) < 0.15
            h = self.net[0](ids.masked_fill(hidden, 0))
            scores = self.net[2](self.net[1](h)[0])
            return F.cross_entropy(scores.transpose(1, 2), ids.masked_fill(~hidden, -100))

    net = nn.ModuleList(
        [nn.Embedding(48, 24), nn.LSTM(24, 16, batch_first=True, bidirectional=True), nn.Linear(32, 48)]
    )
    return Masks(net, lr=5e-3), loader(text(640)), {}


@healthy
def actor_and_critic() -> Run:
    class Agent(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=4))
            self.value = mlp(k=1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            policy = torch.distributions.Categorical(logits=self.net(x))
            action = policy.sample()
            gain = (action == y % 4).float() - 0.2
            value = self.value(x).squeeze(1)
            push = (gain - value).detach() * policy.log_prob(action)
            return -push.mean() + 0.5 * F.mse_loss(value, gain) - 0.01 * policy.entropy().mean()

    return Agent(), loader(*blobs()), {}


@healthy
def clipped_policy_ratio() -> Run:
    class Clipped(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=4))
            self.old = copy.deepcopy(self.net).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            if batch_idx % 4 == 0:
                self.old.load_state_dict(self.net.state_dict())
            before = torch.distributions.Categorical(logits=self.old(x))
            action = before.sample()
            gain = (action == y % 4).float()
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
            ratio = (
                torch.distributions.Categorical(logits=self.net(x)).log_prob(action) - before.log_prob(action)
            ).exp()
            return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 3e-3)

    return Clipped(), loader(*blobs()), {}


@healthy
def hinge_margin() -> Run:
    return Classifier(loss=nn.MultiMarginLoss(), lr=3e-3), loader(*blobs()), {}


@healthy
def poisson_counts() -> Run:
    x, y = line()
    counts = torch.poisson((0.7 * y + 1).exp())
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    return Classifier(net, nn.PoissonNLLLoss(), lr=3e-3), loader(x, counts), {}


@healthy
def quantiles() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        gap = y[:, None] - z
        level = torch.tensor([0.1, 0.5, 0.9])
        return torch.maximum(level * gap, (level - 1) * gap).mean()

    return Classifier(mlp(12, 3), loss, lr=3e-3), loader(*line()), {}


@healthy
def deep_supervision() -> Run:
    class Exits(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.more = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
            self.exits = nn.ModuleList(nn.Linear(32, 10) for _ in range(3))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h, total = torch.relu(self.net(batch[0])), 0
            for i, (layer, out) in enumerate(zip(self.more, self.exits, strict=True)):
                h = torch.relu(layer(h))
                total = total + 0.3 ** (2 - i) * self.loss(out(h), batch[1])
            return total

    return Exits(), loader(*blobs()), {}


@healthy
def sum_of_the_batch_divided_by_hand() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y, reduction="sum") / len(y)

    return Classifier(Recurrent(), loss, lr=3e-3), loader(*tones()), {}


@healthy
def targets_mixed_into_soft_labels() -> Run:
    class Mixed(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            share = float(torch.distributions.Beta(0.4, 0.4).sample())
            soft = F.one_hot(y, 10).float()
            x, soft = share * x + (1 - share) * x.flip(0), share * soft + (1 - share) * soft.flip(0)
            return F.cross_entropy(self.net(x), soft)

    return Mixed(cnn()), loader(*images()), {}
