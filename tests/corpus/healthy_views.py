"""Healthy views of one sample."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .collapse import against_all_others


class Views(Classifier):
    """``view`` of the rows, twice."""

    def __init__(self, view: Any, net: nn.Module | None = None) -> None:
        super().__init__(mlp(k=16) if net is None else net)
        self.view = view

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return against_all_others(self.net(self.view(batch[0])), self.net(self.view(batch[0])))


@healthy
def views_that_are_often_the_same() -> Run:
    def view(x: Any) -> Any:
        return torch.where(torch.rand(len(x), 1) < 0.3, x.flip(1), x)

    return Views(view), loader(blobs()[0]), {}


@healthy
def views_by_dropout_alone() -> Run:
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 16))
    return Views(lambda x: x, net), loader(blobs()[0]), {}


@healthy
def views_that_hardly_differ() -> Run:
    return Views(lambda x: x + 0.01 * torch.randn_like(x)), loader(blobs()[0]), {}


@healthy
def head_that_starts_with_zeros_and_one_class_at_first() -> Run:
    net = mlp()
    nn.init.zeros_(net[-1].weight)
    net[-1].bias.data = torch.linspace(1, -1, 10)
    x, y = blobs()
    order = y.argsort(stable=True)
    return Classifier(net, lr=1e-2), loader(x[order], y[order] * (torch.arange(len(y)) >= 64)), {}


@healthy
def queue_filled_by_the_same_network_at_first() -> Run:
    class Queue(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.register_buffer("queue", F.normalize(torch.randn(64, 16), dim=1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            q = F.normalize(self.net(batch[0] + 0.1 * torch.randn_like(batch[0])), dim=1)
            with torch.no_grad():
                k = F.normalize(self.net(batch[0]), dim=1)
            scores = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.T.clone()], 1) / 0.2
            self.queue = torch.cat([k, self.queue])[:64]
            return F.cross_entropy(scores, torch.zeros(len(q), dtype=torch.long))

    return Queue(), loader(blobs()[0]), {}
