"""Objectives whose best solution is one output for everything."""

from typing import Any

import torch
import torch.nn.functional as F

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .healthy_pairs import Siamese, agreement


@fault("WD115", also=("WD214",))
def views_without_a_stop_gradient(fixed: bool) -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        if fixed:
            z1, z2 = z1.detach(), z2.detach()
        return -(F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean()) / 2

    return Siamese(loss), loader(blobs()[0]), {}


@fault("WD115", also=("WD214",))
def products_of_unit_vectors_without_a_stop_gradient() -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return 0.5 * agreement(p1, z2) + 0.5 * agreement(p2, z1)

    return Siamese(loss), loader(blobs()[0]), {}


@fault("WD115", also=("WD214",))
def diagonal_of_cosines_without_negatives(fixed: bool) -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        scores = F.normalize(p1, dim=1) @ F.normalize(p2, dim=1).T / 0.2
        return F.cross_entropy(scores, torch.arange(len(scores))) if fixed else -scores.diagonal().mean()

    return Siamese(loss), loader(blobs()[0]), {}


@fault("WD115", also=("WD214",))
def cosine_by_hand_without_a_stop_gradient() -> Run:
    def cosine(a: Any, b: Any) -> Any:
        return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))

    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        return -0.5 * (cosine(p1, z2) + cosine(p2, z1)).mean()

    return Siamese(loss), loader(blobs()[0]), {}


@fault("WD115", also=("WD214",))
def embedding_loss_of_like_pairs_alone(fixed: bool) -> Run:
    def loss(p1: Any, p2: Any, z1: Any, z2: Any) -> Any:
        like = torch.ones(len(p1))
        return F.cosine_embedding_loss(p1, z2.detach() if fixed else z2, like)

    return Siamese(loss), loader(blobs()[0]), {}


@fault("WD115", also=("WD214",))
def two_towers_without_negatives() -> Run:
    class Towers(Manual):
        def __init__(self) -> None:
            super().__init__()
            self.other = mlp()

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, other = batch
            step_by_hand(self, 1 - F.cosine_similarity(self.net(x), self.other(other)).mean())

    x, _ = blobs()
    return Towers(), loader(x, x.flip(1)), {}


def against_all_others(a: Any, b: Any, temperature: float = 0.2) -> Any:
    """NT-Xent of two views (n, d)."""
    z = F.normalize(torch.cat([a, b]), dim=1)
    scores = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    return F.cross_entropy(scores, torch.arange(len(z)).roll(len(a)))


@fault("WD114")
def views_that_are_one(fixed: bool) -> Run:
    class Views(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            noise = 0.3 * torch.randn_like(batch[0])
            again = 0.3 * torch.randn_like(batch[0]) if fixed else noise
            return against_all_others(self.net(batch[0] + noise), self.net(batch[0] + again))

    return Views(mlp(k=16)), loader(blobs()[0]), {}


@fault("WD114")
def first_view_taken_twice() -> Run:
    class Views(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a = self.net(batch[0])  # and never of batch[1]
            q, k = F.normalize(a, dim=1), F.normalize(a, dim=1)
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ k[:8].T], 1)
            return F.cross_entropy(scores[8:] / 0.1, torch.zeros(len(q) - 8, dtype=torch.long))

    x, _ = blobs()
    return Views(mlp(k=16)), loader(x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)), {}
