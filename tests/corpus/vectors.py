"""Vectors that are normalised over the batch, and compared with each other."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault


class Compared(Classifier):
    """Cross entropy of ``scores(a, b)`` of two noisy views (n, 16)."""

    def __init__(self, scores: Any) -> None:
        super().__init__(mlp(k=16))
        self.scores = scores

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        a, b = (self.net(batch[0] + 0.3 * torch.randn_like(batch[0])) for _ in range(2))
        scores = self.scores(a, b)
        return F.cross_entropy(scores, torch.arange(len(scores)))


@fault("WD103")
def vectors_normalised_over_the_samples(fixed: bool) -> Run:
    axis = 1 if fixed else 0
    scores = lambda a, b: F.normalize(a, dim=axis) @ F.normalize(b, dim=axis).T / 0.1  # noqa: E731
    return Compared(scores), loader(blobs()[0]), {}


@fault("WD103")
def lengths_by_hand_over_the_samples(fixed: bool) -> Run:
    def scores(a: Tensor, b: Tensor) -> Tensor:
        a, b = (z / (z.norm(dim=int(fixed), keepdim=True) + 1e-8) for z in (a, b))
        return torch.matmul(a, b.t()) * 5

    return Compared(scores), loader(blobs()[0]), {}


@fault("WD103")
def lengths_over_the_samples_behind_a_temperature(fixed: bool) -> Run:
    def scores(a: Tensor, b: Tensor) -> Tensor:
        a, b = (z / z.norm(dim=int(fixed), keepdim=True) for z in (a, b))
        return torch.tensor(2.0, requires_grad=True).exp() * a @ b.t()

    return Compared(scores), loader(blobs()[0]), {}


@fault("WD103")
def default_axis_for_a_sequence_of_vectors() -> Run:
    class Slots(Manual):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 96), nn.Unflatten(1, (6, 16))))

        def training_step(self, batch: Any, batch_idx: int) -> None:
            a, b = (F.normalize(self.net(batch[0] + 0.3 * torch.randn_like(batch[0]))) for _ in range(2))
            scores = torch.bmm(a, b.transpose(1, 2)) / 0.1
            step_by_hand(self, F.cross_entropy(scores.flatten(0, 1), torch.arange(6).repeat(len(a))))

    return Slots(), loader(blobs()[0]), {}
