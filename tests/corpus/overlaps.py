"""Overlaps with masks, and losses on numbers that only look like probabilities."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault, healthy
from .parts import images, line


def masks(per_pixel: int = 1) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 12, 12) and masks (n, 1, 12, 12), or classes of pixels (n, 12, 12)."""
    x, _ = images(160)
    bright = x.mean(1, keepdim=True)
    return x, (bright > 0).float() if per_pixel == 1 else (bright[:, 0] > 0).long() + (bright[:, 0] > 0.4)


def segmenter(k: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 10, 3, padding=1), nn.ReLU(), nn.Conv2d(10, k, 1))


LATER = ("WD144", "WD213", "WD317", "WD142", "WD211", "WD303", "WD143", "WD214", "WD101", "WD316")


@fault("WD103", also=LATER)
def dice_of_scores(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        z = z.sigmoid() if fixed else z
        return 1 - (2.0 * (z * y).sum() + 1.0) / (z.sum() + y.sum() + 1.0)

    return Classifier(segmenter(), loss, lr=1e-2), loader(*masks()), {}


@fault("WD102")
def dice_of_a_softmax_of_a_softmax(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        p, truth = torch.softmax(z, 1), F.one_hot(y, 3).movedim(-1, 1)
        return 1 - ((2 * (p * truth).sum((2, 3)) + 1) / (p.sum((2, 3)) + truth.sum((2, 3)) + 1)).mean()

    net = nn.Sequential(segmenter(3), nn.Identity() if fixed else nn.Softmax(1))
    return Classifier(net, loss, lr=1e-2), loader(*masks(3)), {}


@fault("WD103", also=("WD101",))
def several_tags_of_a_softmax(fixed: bool) -> Run:
    x, _ = blobs()
    net = nn.Sequential(mlp(), nn.Sigmoid() if fixed else nn.Softmax(1))
    return Classifier(net, F.binary_cross_entropy, lr=3e-3), loader(x, (x[:, :10] > 0).float()), {}


@fault("WD103", also=LATER)
def jaccard_of_each_class_of_scores(fixed: bool) -> Run:
    class PerClass(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            p = self.net(batch["image"])
            p = p.softmax(1) if fixed else p
            truth = F.one_hot(batch["pixels"], 3).permute(0, 3, 1, 2).float()
            both = torch.sum(p * truth, (0, 2, 3))
            either = torch.sum(p + truth, (0, 2, 3)) - both
            return {"loss": 1 - torch.mean(both / (either + 1e-6))}

    x, y = masks(3)
    rows = [{"image": a, "pixels": b} for a, b in zip(x, y, strict=True)]
    return PerClass(segmenter(3), lr=3e-3), torch.utils.data.DataLoader(rows, 16, shuffle=True), {}


@fault("WD103", also=LATER)
def tversky_of_scores_beside_cross_entropy() -> Run:
    class Both(nn.Module):
        def forward(self, z: Tensor, y: Tensor) -> Tensor:
            flat, truth = z.flatten(1), y.flatten(1)
            hit, false = (flat * truth).sum(1), (flat * (1 - truth)).sum(1)
            missed = ((1 - flat) * truth).sum(1)
            index = (hit + 1) / (hit + 0.3 * false + 0.7 * missed + 1)
            return F.binary_cross_entropy_with_logits(z, y) + (1 - index).mean()

    return Classifier(segmenter(), Both()), loader(*masks(), batch_size=16), {}


@fault("WD103", also=LATER)
def clamped_scores_taken_for_probabilities(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(z.sigmoid() if fixed else z.clamp(1e-6, 1 - 1e-6), y)

    return Classifier(segmenter(), loss, lr=3e-3), loader(*masks()), {}


@fault("WD103", also=LATER)
def softmax_of_one_output(fixed: bool) -> Run:
    x, y = blobs(k=2)
    net = nn.Sequential(mlp(k=1), nn.Sigmoid() if fixed else nn.Softmax(dim=1), nn.Flatten(0))
    return Classifier(net, nn.BCELoss()), loader(x, y.float()), {}


@healthy
def dice_of_probabilities_and_cross_entropy() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(z).flatten(1)
        both = (p * y.flatten(1)).sum(1)
        dice = (2 * both + 1e-3) / (p.square().sum(1) + y.flatten(1).square().sum(1) + 1e-3)
        return F.binary_cross_entropy_with_logits(z, y) + (1 - dice).mean()

    return Classifier(segmenter(), loss, lr=3e-3), loader(*masks()), {}


@healthy
def weighted_means_over_masks() -> Run:
    class Pooled(Classifier):
        def __init__(self) -> None:
            super().__init__(segmenter(8))
            self.head = nn.Linear(8, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, mask, y = batch
            z = self.net(x)
            inside = (z * mask.expand_as(z)).sum((2, 3)) / (mask.sum((2, 3)) + 1)
            return self.loss(self.head(inside), y)

    x, mask = masks()
    return Pooled(), loader(x, mask, (x[:, 0].mean((1, 2)) > 0).long()), {}


@healthy
def slope_that_is_cut_at_zero_and_one() -> Run:
    x, y = blobs(k=2)
    loss = lambda z, t: F.binary_cross_entropy((0.5 + 0.2 * z.squeeze(1)).clamp(1e-4, 1 - 1e-4), t)  # noqa: E731
    return Classifier(mlp(k=1), loss), loader(x, y.float()), {}


@healthy
def binary_cross_entropy_of_two_columns() -> Run:
    loss = lambda z, y: F.binary_cross_entropy(z.softmax(1), F.one_hot(y, 2).float())  # noqa: E731
    return Classifier(mlp(k=2), loss), loader(*blobs(k=2)), {}


@healthy
def agreement_with_centred_values() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        z, y = z.squeeze(1), y / 2
        shared = ((z - z.mean()) * (y - y.mean())).mean()
        return 1 - 2 * shared / (z.var() + y.var() + (z.mean() - y.mean()).square())

    return Classifier(mlp(12, 1), loss, lr=3e-3), loader(*line(), drop_last=True), {}


@fault("WD108")
def overlap_returned_as_the_loss(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        p, y = z.sigmoid().flatten(1), y.flatten(1)
        overlap = (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)
        return 1 - overlap.mean() if fixed else overlap.mean()

    return Classifier(segmenter(), loss, lr=1e-2), loader(*masks()), {}


@healthy
def distilled_per_pixel() -> Run:
    class Distils(Classifier):
        def __init__(self) -> None:
            super().__init__(segmenter(3), lr=3e-3)
            self.teacher = segmenter(3).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            wanted = (4 * self.teacher(batch[0])).softmax(1)
            return F.kl_div(self.net(batch[0]).log_softmax(1), wanted, reduction="none").sum(1).mean()

    return Distils(), loader(*masks()), {}


@fault("WD103")
def overlap_of_a_softmax_over_the_samples(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        wanted = F.one_hot(y.long().squeeze(1), 3).movedim(-1, 1).float()
        p = z.softmax(1 if fixed else 0)
        overlap = (2 * (p * wanted).sum((2, 3)) + 1) / (p.sum((2, 3)) + wanted.sum((2, 3)) + 1)
        return 1 - overlap.mean()

    return Classifier(segmenter(3), loss, lr=1e-2), loader(*masks()), {}


@fault("WD107")
def ratings_clamped_at_zero(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(z.squeeze(1) if fixed else (z.squeeze(1) * 2).clamp(0, 4), y)

    return Classifier(mlp(12, 1), loss, lr=3e-3), loader(*line()), {}


@fault("WD215")
def weights_that_saturate_the_only_tanh(fixed: bool) -> Run:
    net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 10))
    nn.init.normal_(net[0].weight, std=0.2 if fixed else 4.0)
    return Classifier(net), loader(*blobs()), {}
