"""Labels and targets that are not what the loss takes them for."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
from .parts import TableNet, categories, cnn, images, line


@fault("WD110", also=("WD143", "WD144", "WD145"))
def sorted_by_class(fixed: bool) -> Run:
    x, y = blobs(640)
    order = y.argsort()
    return Classifier(), loader(x[order], y[order], batch_size=16, shuffle=fixed), {}


@fault("WD105", raises="IndexError")
def labels_from_one(fixed: bool) -> Run:
    x, y = images()
    return Classifier(cnn(11 if fixed else 10)), loader(x, y + 1), {}


@fault("WD105", raises="IndexError")
def unlabelled_marked_by_minus_one(fixed: bool) -> Run:
    x, y = blobs()
    y[::5] = -1
    return Classifier(loss=nn.CrossEntropyLoss(ignore_index=-1 if fixed else -100)), loader(x, y), {}


@fault("WD105", also=("WD142",))
def batch_without_a_label() -> Run:
    x, y = blobs(320)
    y[64:96] = -100
    return Classifier(), loader(x, y, shuffle=False), {}


@fault("WD105")
def first_class_ignored() -> Run:
    x, y = blobs(k=5)
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(ignore_index=0)), loader(x, y), {}


@fault("WD106")
def head_of_another_dataset(fixed: bool) -> Run:
    return Classifier(mlp(k=5 if fixed else 100)), loader(*blobs(640, k=5)), {}


@fault("WD145")
def label_among_the_features(fixed: bool) -> Run:
    x, y = blobs(640, k=4)
    x = x if fixed else torch.cat([x, F.one_hot(y, 4).float()], 1)
    return Classifier(mlp(x.shape[1], 4)), loader(x, y), {}


@fault("WD145")
def target_beside_an_embedding(fixed: bool) -> Run:
    x, y = line()
    x[:, 3] = x[:, 3] if fixed else y
    return Classifier(TableNet(12), F.mse_loss, lr=3e-3), loader(categories(x), y), {}


@fault("WD145")
def label_beside_an_embedding(fixed: bool) -> Run:
    x, y = blobs(512)
    x[:, 3] = x[:, 3] if fixed else y / 5 - 1
    return Classifier(TableNet(20, 10)), loader(categories(x), y), {}


@fault("WD145")
def target_in_a_table_that_is_normalised_first(fixed: bool) -> Run:
    x, y = line()
    x[:, 7] = x[:, 7] if fixed else y
    net = nn.Sequential(nn.BatchNorm1d(12), mlp(12, 1), nn.Flatten(0))
    return Classifier(net, F.mse_loss, lr=3e-3), loader(x, y), {}


@fault("WD145")
def target_among_the_features() -> Run:
    x, y = line()
    x[:, 7] = y
    return Classifier(nn.Sequential(mlp(12, 1), nn.Flatten(0)), F.mse_loss, lr=3e-3), loader(x, y), {}


@fault("WD105", "WD402", raises="RuntimeError")
def whole_numbers_as_binary_targets() -> Run:
    x, y = blobs()
    return Classifier(nn.Sequential(mlp(k=1), nn.Flatten(0)), F.binary_cross_entropy_with_logits), loader(x, y % 2), {}


@fault("WD105", raises="RuntimeError")
def one_hot_rows_of_integers() -> Run:
    x, y = blobs()
    return Classifier(), loader(x, F.one_hot(y, 10)), {}


@fault("WD105", raises="RuntimeError")
def class_indices_as_floats(fixed: bool) -> Run:
    x, y = blobs()
    return Classifier(), loader(x, y if fixed else y.float()), {}


@fault("WD105")
def soft_labels_that_do_not_sum_to_one(fixed: bool) -> Run:
    x, y = blobs()
    soft = F.one_hot(y, 10) * 0.9 + (0.01 if fixed else 0.3)
    return Classifier(), loader(x, soft), {}


@fault("WD105", also=("WD108", "WD144"))
def labels_minus_one_and_one(fixed: bool) -> Run:
    x, y = blobs(k=2)
    y = y.float() if fixed else 2.0 * y - 1
    return Classifier(nn.Sequential(mlp(k=1), nn.Flatten(0)), F.binary_cross_entropy_with_logits), loader(x, y), {}


@fault("WD105", raises="IndexError")
def class_added_to_the_data_later() -> Run:
    x, y = blobs(640, k=11)
    order = y.argsort(stable=True)
    keep = torch.cat([order[y[order] < 10][torch.randperm(int((y < 10).sum()))], order[y[order] == 10]])
    return Classifier(), loader(x[keep], y[keep], shuffle=False), {}


@fault("WD110", also=("WD145", "WD143", "WD106"))
def one_label_for_everything() -> Run:
    x, y = blobs(512)
    return Classifier(mlp(k=2)), loader(x, 0 * y, shuffle=False), {}


@fault("WD105")
def hinge_by_hand_of_zeros_and_ones(fixed: bool) -> Run:
    class Machine(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            sides = 2.0 * (y > 4) - 1 if fixed else (y > 4).float()
            return (1 - sides * self.net(x).squeeze(1)).clamp(min=0).mean() + 0.01 * self.net.weight.square().sum()

    return Machine(nn.Linear(20, 1), optimizer=torch.optim.SGD, lr=0.05), loader(*blobs()), {}


@fault("WD110", also=("WD143", "WD144"))
def first_label_for_the_whole_batch(fixed: bool) -> Run:
    class First(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(x), y if fixed else y[:1].expand(len(y)))

    return First(), loader(*blobs()), {}


@fault("WD110", also=("WD143",))
def positives_only(fixed: bool) -> Run:
    class Positive(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            targets = (y > 4).float()[:, None] if fixed else torch.ones_like(scores)
            return F.binary_cross_entropy_with_logits(scores, targets)

    return Positive(mlp(k=1)), loader(*blobs(512)), {"max_steps": 110}


@fault("WD121", "WD142", also=("WD211", "WD303"))
def missing_targets_of_a_regression(fixed: bool) -> Run:
    x, y = line()
    y[::50] = 0 if fixed else float("nan")
    return Classifier(nn.Sequential(mlp(12, 1), nn.Flatten(0)), F.mse_loss, lr=3e-3), loader(x, y), {}


@fault("WD104")
def rows_against_columns_of_equal_number(fixed: bool) -> Run:
    class Sums(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch["in"], batch["out"]
            return F.l1_loss(self.net(x), y[:, None] if fixed else y)

    rows = [{"in": a, "out": b} for a, b in zip(*line(), strict=True)]
    return Sums(mlp(12, 1), lr=3e-3), DataLoader(rows, 64, shuffle=True), {}


@fault("WD103", "WD109", raises="RuntimeError")
def arguments_swapped() -> Run:
    loss = lambda z, y: F.nll_loss(F.one_hot(y, 10).float(), z.argmax(1))  # noqa: E731
    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD103")
def divergence_with_its_arguments_swapped() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.kl_div(F.one_hot(y, 10) * 0.9 + 0.01, z.log_softmax(1), reduction="batchmean")

    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD102")
def softmax_on_one_of_two_heads(fixed: bool) -> Run:
    class Two(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU()))
            self.kind, self.sign = nn.Linear(32, 10), nn.Linear(32, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h, y = self.net(batch[0]), batch[1]
            sign = self.sign(h)
            return self.loss(self.kind(h), y) + 0.5 * self.loss(sign if fixed else sign.softmax(1), y % 2)

    return Two(), loader(*blobs()), {}


@fault("WD101", also=("WD213", "WD317"))
def temperature_turned_the_wrong_way(fixed: bool) -> Run:
    loss = lambda z, y: F.cross_entropy(z / 50 if fixed else z * 50, y)  # noqa: E731
    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD105", also=("WD101",))
def counts_that_were_standardised(fixed: bool) -> Run:
    x, y = line()
    counts = torch.poisson((0.5 * y).exp() * 3)
    target = counts if fixed else (counts - counts.mean()) / counts.std()
    return Classifier(nn.Sequential(mlp(12, 1), nn.Flatten(0)), F.poisson_nll_loss, lr=3e-3), loader(x, target), {}


def rare(k: int = 5) -> tuple[Tensor, Tensor]:
    """Clusters of which each is half as frequent as the one before."""
    x, y = blobs(2000, k=k)
    kept = torch.rand(len(y)) < 0.5**y
    return x[kept], y[kept]


@fault("WD113")
def weights_by_the_frequency(fixed: bool) -> Run:
    x, y = rare()
    counts = y.bincount().float()
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(counts.mean() / counts if fixed else counts)), loader(x, y), {}


@fault("WD113")
def factors_by_the_frequency_of_each_label(fixed: bool) -> Run:
    x, y = rare()
    counts = y.bincount().float()
    table = counts.mean() / counts if fixed else counts / counts.mean()

    def loss(z: Tensor, labels: Tensor) -> Tensor:
        factors = table[labels]
        return (F.cross_entropy(z, labels, reduction="none") * factors).sum() / factors.sum()

    return Classifier(mlp(k=5), loss), loader(x, y), {}


@fault("WD113")
def positives_over_negatives(fixed: bool) -> Run:
    x = torch.randn(1500, 20)
    y = (x[:, :3] > torch.tensor([1.2, 1.5, 0.0])).float()
    odds = y.mean(0) / (1 - y.mean(0))
    loss = nn.BCEWithLogitsLoss(pos_weight=1 / odds if fixed else odds)
    return Classifier(mlp(k=3), loss), loader(x, y), {}


class Distils(Classifier):
    """Learns from labels and from a second network; ``copies``: that is one of its own."""

    def __init__(self, copies: bool, momentum: float = 0.9) -> None:
        super().__init__(lr=3e-3)
        self.teacher = copy.deepcopy(self.net).requires_grad_(False) if copies else self.net
        self.copies, self.momentum = copies, momentum

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(batch[0])
        with torch.no_grad():
            wanted = self.teacher(batch[0]).softmax(1)
        return F.cross_entropy(scores, batch[1]) + F.kl_div(scores.log_softmax(1), wanted, reduction="batchmean")

    @torch.no_grad()
    def on_train_batch_end(self, *_: Any) -> None:
        for slow, quick in zip(self.teacher.parameters(), self.net.parameters(), strict=True) if self.copies else ():
            slow.lerp_(quick, 1 - self.momentum)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), 3e-3)


@fault("WD114")
def teacher_that_is_the_student(fixed: bool) -> Run:
    return Distils(copies=fixed), loader(*blobs()), {}


@fault("WD114")
def teacher_that_follows_at_once() -> Run:
    return Distils(copies=True, momentum=0.0), loader(*blobs()), {}


@fault("WD114")
def output_compared_with_itself(fixed: bool) -> Run:
    class Consistent(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one = self.net(batch[0] + 0.1 * torch.randn_like(batch[0]))
            other = self.net(batch[0] + 0.1 * torch.randn_like(batch[0]))
            return F.mse_loss(one, (other if fixed else one).detach())

    return Consistent(), loader(*blobs()), {}


class Game(Manual):
    """A generator against a discriminator; ``real`` and ``made`` are what the latter is told."""

    def __init__(self, real: float, made: float, last: nn.Module | None = None, frozen: bool = False) -> None:
        super().__init__(mlp(8, 2))
        self.critic = nn.Sequential(mlp(2, 1), *([last] if last is not None else []))
        self.bce = F.binary_cross_entropy if last is not None else F.binary_cross_entropy_with_logits
        self.real, self.made, self.frozen = real, made, frozen

    def told(self, x: Tensor, answer: float) -> Tensor:
        scores = self.critic(x)
        return self.bce(scores, torch.full_like(scores, answer))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        player, critic = self.optimizers()
        made = self.net(torch.randn(len(batch[0]), 8))
        critic.zero_grad()
        loss = self.told(batch[0], self.real)
        self.manual_backward(loss + self.told(made.detach(), self.made))
        critic.step()
        player.zero_grad()
        self.critic.requires_grad_(not self.frozen)
        first = self.told(made, 1.0)
        self.manual_backward(first + self.told(made + 0.01, 1.0))
        self.critic.requires_grad_(True)
        player.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.critic)]


@fault("WD114")
def anchor_that_is_its_own_positive(fixed: bool) -> Run:
    class Triplets(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            z = self.net(x)
            near = torch.stack([((y == k) & (torch.arange(len(y)) != i)).float().argmax() for i, k in enumerate(y)])
            far = (y != y[:, None]).float().argmax(1)
            return F.triplet_margin_loss(z, z[near] if fixed else z, z[far])

    return Triplets(), loader(*blobs()), {}


@fault("WD110")
def discriminator_told_the_same_of_real_and_made(fixed: bool) -> Run:
    return Game(1.0 if fixed else 0.0, 0.0), loader(torch.randn(512, 2) + 1), {"max_steps": 400}


@fault("WD110")
def discriminator_with_a_sigmoid_told_that_all_is_real() -> Run:
    return Game(1.0, 1.0, nn.Sigmoid(), frozen=True), loader(torch.randn(512, 2) + 1), {"max_steps": 400}
