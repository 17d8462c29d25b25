"""Statements of their own that do something all the same, and results that are taken in other ways."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


@healthy
def statements_that_write_in_place() -> Run:
    class Written(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            x = x.clone()
            x.clamp_(-3, 3)
            torch.mul(x, 0.5, out=x)
            F.relu(x.add_(3), inplace=True)
            scores = self.net(x)
            scores.retain_grad()
            return F.cross_entropy(scores, y)

    return Written(), loader(*blobs()), {}


@healthy
def network_called_for_its_hook() -> Run:
    class Hooked(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(32, 10))
            self.body = mlp(20, 10)
            self.body[1].register_forward_hook(lambda module, given, out: self.kept.append(out))
            self.kept: list[Tensor] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.kept.clear()
            self.body(batch[0])
            return F.cross_entropy(self.net(self.kept[0]), batch[1])

    return Hooked(), loader(*blobs()), {}


@healthy
def results_that_are_thrown_away_by_name() -> Run:
    def apart(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.mul(1.0), x.detach()

    class Thrown(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            _ = x.clamp(0, 1)
            x, _ = apart(x)
            x.view(len(y), -1).add_(0.0)
            self.log("largest", x.abs().max())
            return F.cross_entropy(self.net(x), y)

    return Thrown(), loader(*blobs()), {}


@healthy
def sums_asked_for_to_wait_for_the_device() -> Run:
    class Waiting(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            loss.item()
            torch.isfinite(loss).all()
            [p.numel() for p in self.parameters()]
            return loss

    return Waiting(), loader(*blobs()), {}
