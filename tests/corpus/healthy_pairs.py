"""Healthy runs that compare samples with each other."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import cnn, images, text
from .targets import Distils, Game


@healthy
def triplets() -> Run:
    class Triplets(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            z = F.normalize(self.net(x), dim=1)
            gaps = torch.cdist(z, z)
            same = y[:, None] == y
            far = (gaps * same).max(1).values
            near = gaps.masked_fill(same, 9.0).min(1).values
            return F.relu(far - near + 0.3).mean()

    return Triplets(), loader(*blobs()), {}


@healthy
def preferences() -> Run:
    class Preferences(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            better, worse = self.net(batch[0]), self.net(batch[0].roll(1, 0))
            wanted = (batch[0][:, :1] > batch[0].roll(1, 0)[:, :1]).float() * 2 - 1
            return -F.logsigmoid(wanted * (better - worse)).mean()

    return Preferences(mlp(k=1), lr=3e-3), loader(*blobs()), {}


@healthy
def likeness_and_difference_in_turn() -> Run:
    class Turns(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, other = (self.net(batch[0] + 0.1 * torch.randn_like(batch[0])) for _ in range(2))
            if batch_idx % 2:
                return F.relu(F.cosine_similarity(one, other.roll(1, 0)) - 0.2).mean()
            return 1 - F.cosine_similarity(one, other).mean()

    return Turns(mlp(k=16)), loader(*blobs()), {}


@healthy
def two_optimizers_in_turn() -> Run:
    class Turns(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.head = nn.Linear(16, 10)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            optimizer = self.optimizers()[batch_idx % 2]
            if batch_idx % 2:
                loss = F.cross_entropy(self.head(self.net(x)), y)
            else:
                loss = -F.cosine_similarity(self.net(x + 0.1), self.net(x - 0.1)).mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3), Adam(self.parameters(), 1e-3)

    return Turns(), loader(*blobs()), {}


@healthy
def redundancy_reduction() -> Run:
    class Barlow(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (self.net(batch[0] + 0.2 * torch.randn_like(batch[0])) for _ in range(2))
            a, b = ((z - z.mean(0)) / (z.std(0) + 1e-4) for z in (a, b))
            matrix = a.T @ b / len(a)
            return (torch.eye(16) - matrix).square().mul(0.01 + 0.99 * torch.eye(16)).sum()

    return Barlow(mlp(k=16), lr=3e-3), loader(torch.randn(640, 20)), {}


@healthy
def angular_margin() -> Run:
    class Angles(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16), lr=3e-3)
            self.centres = nn.Parameter(torch.randn(10, 16))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            cosine = F.normalize(self.net(x)) @ F.normalize(self.centres).T
            angle = cosine.clamp(-0.999, 0.999).acos() + 0.3 * F.one_hot(y, 10)
            return F.cross_entropy(16 * angle.cos(), y)

    return Angles(), loader(*blobs()), {}


@healthy
def images_and_captions() -> Run:
    class Pairs(Classifier):
        def __init__(self) -> None:
            super().__init__(cnn(16), lr=3e-3)
            self.words, self.scale = nn.EmbeddingBag(48, 16), nn.Parameter(torch.tensor(math.log(1 / 0.07)))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            image, ids = batch["image"], batch["ids"]
            a, b = F.normalize(self.net(image), dim=-1), F.normalize(self.words(ids), dim=-1)
            scores, where = self.scale.exp() * a @ b.T, torch.arange(len(a))
            return (F.cross_entropy(scores, where) + F.cross_entropy(scores.T, where)) / 2

    x, y = images()
    rows = [
        {"image": a, "ids": b} for a, b in zip(x, (text(n=10)[y] + torch.randint(0, 2, (320, 20))) % 48, strict=True)
    ]
    return Pairs(), torch.utils.data.DataLoader(rows, 32, shuffle=True), {}


@healthy
def two_views_against_all_others() -> Run:
    class Views(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = torch.cat([batch[0] + 0.2 * torch.randn_like(batch[0]) for _ in range(2)])
            z = F.normalize(self.net(x), dim=1)
            scores = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
            return F.cross_entropy(scores, torch.arange(len(z)).roll(len(z) // 2))

    return Views(mlp(k=16)), loader(torch.randn(512, 20)), {}


@healthy
def users_and_items_without_accidental_hits() -> Run:
    class Towers(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16), lr=3e-3)
            self.items = nn.Embedding(40, 16)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, item = batch
            scores = F.normalize(self.net(x)) @ F.normalize(self.items(item)).T / 0.1
            hits = (item[:, None] == item) & ~torch.eye(len(item), dtype=torch.bool)
            return F.cross_entropy(scores.masked_fill(hits, -1e9), torch.arange(len(item)))

    return Towers(), loader(*blobs(k=40)), {}


@healthy
def queue_of_negatives() -> Run:
    class Queue(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.slow = mlp(k=16).requires_grad_(False)
            self.slow.load_state_dict(self.net.state_dict())
            self.register_buffer("queue", F.normalize(torch.randn(128, 16)))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x,) = batch
            q = F.normalize(self.net(x + 0.1 * torch.randn_like(x)))
            with torch.no_grad():
                for slow, quick in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                    slow.lerp_(quick, 0.01)
                k = F.normalize(self.slow(x + 0.1 * torch.randn_like(x)))
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.T], 1) / 0.2
            self.queue = torch.cat([k, self.queue])[:128]
            return F.cross_entropy(scores, torch.zeros(len(x), dtype=torch.long))

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3)

    return Queue(), loader(torch.randn(512, 20)), {}


@healthy
def policy_kept_near_the_one_that_it_started_from() -> Run:
    class Policy(Distils):
        def configure_optimizers(self) -> Any:
            optimizer = Adam(self.net.parameters(), 1e-5)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, s / 10_000))
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    return Policy(copies=True, momentum=1.0), loader(*blobs()), {"max_steps": 60}


@healthy
def the_same_network_twice_with_dropout() -> Run:
    class Twice(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, other = self.net(batch[0]), self.net(batch[0])
            apart = F.kl_div(one.log_softmax(1), other.softmax(1), reduction="batchmean")
            return F.cross_entropy(one, batch[1]) + apart

    net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    return Twice(net), loader(*blobs()), {}


@healthy
def soft_labels_that_are_all_alike() -> Run:
    def loss(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        even = F.cross_entropy(z, torch.full_like(z, 0.1))
        return F.cross_entropy(z, y) + 0.1 * even

    return Classifier(loss=loss), loader(*blobs()), {}


@healthy
def offsets_that_start_at_zero() -> Run:
    class Residual(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0] + 0.3 * torch.randn_like(batch[0])
            return F.mse_loss(x + self.net(x), batch[0])

    net = mlp(k=20)
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)
    return Residual(net), loader(*blobs()), {}


@healthy
def pulled_towards_the_initial_weights() -> Run:
    class Anchored(Classifier):
        def on_fit_start(self) -> None:
            self.initial = self.net[0].weight.detach().clone()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) + F.mse_loss(self.net[0].weight, self.initial)

    return Anchored(), loader(*blobs()), {}


class Siamese(Classifier):
    """Two noisy views: ``loss(p1, p2, z1, z2)`` of predictions and projections."""

    def __init__(self, loss: Any) -> None:
        super().__init__(mlp(k=16), loss, lr=3e-3)
        self.predictor = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        one, other = (self.net(batch[0] + 0.1 * torch.randn_like(batch[0])) for _ in range(2))
        return self.loss(self.predictor(one), self.predictor(other), one, other)


def agreement(p: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return -(F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(1).mean()


@healthy
def views_with_a_stop_gradient() -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return (agreement(p1, z2.detach()) + agreement(p2, z1.detach())) / 2

    return Siamese(loss), loader(blobs()[0]), {}


@healthy
def views_with_spread_and_correlation() -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        spread = sum(F.relu(1 - z.std(0)).mean() for z in (p1, p2))
        return 1 - F.cosine_similarity(p1, p2).mean() + spread

    return Siamese(loss), loader(blobs()[0]), {}


@healthy
def views_apart_from_other_samples() -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return (F.cosine_similarity(p1, p2.roll(1, 0)) - F.cosine_similarity(p1, p2)).mean()

    return Siamese(loss), loader(blobs()[0]), {}


@healthy
def margin_between_cosines() -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return F.relu(0.5 + F.cosine_similarity(p1, p2.roll(1, 0)) - F.cosine_similarity(p1, p2)).mean()

    return Siamese(loss), loader(blobs()[0]), {}


@healthy
def whitened_views() -> Run:
    def white(z: Any) -> Any:
        z = z - z.mean(0)
        root = torch.linalg.cholesky(z.T @ z / len(z) + 1e-2 * torch.eye(z.shape[1]))
        return torch.linalg.solve_triangular(root, z.T, upper=False).T

    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return 2 - 2 * F.cosine_similarity(white(p1), white(p2)).mean()

    return Siamese(loss), loader(blobs()[0]), {}


@healthy
def cosine_to_vectors_of_the_batch() -> Run:
    return Classifier(mlp(k=20), lambda z, x: 1 - F.cosine_similarity(z, x).mean()), loader(*[blobs()[0]] * 2), {}


@healthy
def cosine_beside_a_classification() -> Run:
    class Both(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, other = self.net(batch[0]), self.net(batch[0] + 0.1 * torch.randn_like(batch[0]))
            return F.cross_entropy(one, batch[1]) - 0.1 * F.cosine_similarity(one, other).mean()

    return Both(), loader(*blobs()), {}


@healthy
def discriminator_frozen_while_the_generator_learns() -> Run:
    return Game(1.0, 0.0, frozen=True), loader(torch.randn(512, 2) + 1), {"max_steps": 240}


@healthy
def smooth_answers_of_a_sigmoid() -> Run:
    return Game(0.9, 0.1, nn.Sigmoid()), loader(torch.randn(512, 2) + 1), {"max_steps": 240}


@healthy
def one_answer_after_the_other() -> Run:
    class Apart(Game):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            made = self.net(torch.randn(len(batch[0]), 8))
            critic.zero_grad()
            self.manual_backward(self.told(batch[0], 1.0))
            self.manual_backward(self.told(made.detach(), 0.0))
            critic.step()
            player.zero_grad()
            self.manual_backward(self.told(made, 1.0))
            player.step()

    return Apart(1.0, 0.0), loader(torch.randn(512, 2) + 1), {"max_steps": 240}


@healthy
def answers_relative_to_each_other() -> Run:
    class Relative(Game):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            made = self.net(torch.randn(len(batch[0]), 8))
            for optimizer, x, other in ((critic, batch[0], made.detach()), (player, made, batch[0])):
                optimizer.zero_grad()
                apart = self.critic(x) - self.critic(other)
                self.manual_backward(self.bce(apart, torch.ones_like(apart)))
                optimizer.step()

    return Relative(1.0, 0.0), loader(torch.randn(512, 2) + 1), {"max_steps": 240}


@healthy
def order_of_all_pairs_from_one_column() -> Run:
    class Ordered(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            gaps, wanted = scores - scores.squeeze(1), (y[:, None] > y[None]).float()
            return (F.softplus(-gaps) * wanted).sum() / wanted.sum()

    x, y = torch.randn(512, 12), torch.randn(512)
    return Ordered(mlp(12, 1), lr=3e-3), loader(x, y + x[:, 0]), {}
