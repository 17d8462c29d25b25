"""Healthy products of vectors that were normalised along some axis."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import images
from .vectors import Compared


@healthy
def columns_normalised_and_compared_with_columns() -> Run:
    class Columns(Compared):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (self.net(batch[0] + 0.3 * torch.randn_like(batch[0])) for _ in range(2))
            scores = F.normalize(a, dim=0).T @ F.normalize(b, dim=0) / 0.1
            return F.cross_entropy(scores, torch.arange(16))

    return Columns(None), loader(blobs()[0]), {}


@healthy
def samples_laid_out_as_columns() -> Run:
    def scores(a: Tensor, b: Tensor) -> Tensor:
        a, b = F.normalize(a.T, dim=0), F.normalize(b.T, dim=0)
        return a.T @ b / 0.1

    return Compared(scores), loader(blobs()[0]), {}


@healthy
def features_brought_to_one_size_and_then_each_vector() -> Run:
    def scores(a: Tensor, b: Tensor) -> Tensor:
        a, b = (F.normalize(F.normalize(z, dim=0), dim=1) for z in (a, b))
        return a @ b.T / 0.1

    return Compared(scores), loader(blobs()[0]), {}


@healthy
def channels_normalised_and_compared_between_places() -> Run:
    class Places(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            a, b = (F.normalize(self.net(x + 0.2 * torch.randn_like(x)).flatten(2)) for _ in range(2))
            scores = a.transpose(1, 2) @ b / 0.1
            return F.cross_entropy(scores.flatten(0, 1), torch.arange(16).repeat(len(x)))

    net = nn.Sequential(nn.Conv2d(3, 16, 3, 3), nn.ReLU(), nn.Conv2d(16, 8, 1))
    return Places(net), loader(images()[0]), {}


@healthy
def channels_that_attend_to_channels() -> Run:
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.both, self.head = nn.Linear(5, 16), nn.Linear(16, 48), nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x.unflatten(1, (4, 5)))
            q, k, v = (t.transpose(1, 2) for t in self.both(h).chunk(3, -1))
            mixed = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(1, 2)).softmax(-1) @ v
            return self.head((h + mixed.transpose(1, 2)).mean(1))

    return Classifier(Crossed(), lr=3e-3), loader(*blobs()), {}


@healthy
def weights_normalised_by_column() -> Run:
    class Angles(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16), lr=3e-3)
            self.centres = nn.Parameter(torch.randn(16, 10))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return F.cross_entropy(F.normalize(self.net(x)) @ F.normalize(self.centres, dim=0) * 8, y)

    return Angles(), loader(*blobs()), {}
