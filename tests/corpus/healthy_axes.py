"""Healthy runs whose axes look as if they were confused."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, loader, mlp

from .case import Run, healthy
from .parts import line


@healthy
def kernels_of_all_pairs() -> Run:
    class Kernels(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, weight = batch
            z = self.net(x)
            lengths = z.square().sum(1, keepdim=True)
            apart = lengths + z.square().sum(1) - 2 * z @ z.T
            return (-apart / 2).exp().mean() + 0.01 * (weight * apart).mean()

    return Kernels(mlp(12, 6)), loader(*line(), batch_size=16), {}


@healthy
def columns_and_rows_whose_mean_is_the_same() -> Run:
    class Both(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            z = self.net(x)
            near = F.mse_loss(z, y[:, None], reduction="none")
            return (near + F.l1_loss(z.squeeze(1), y, reduction="none")).mean()

    return Both(mlp(12, 1), lr=3e-3), loader(*line()), {}


@healthy
def gates_beside_a_row_of_as_many_features() -> Run:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.gate, self.outlet = nn.Linear(12, 32), nn.Linear(32, 1), nn.Linear(32, 1)
            self.scale = nn.Parameter(torch.ones(32))

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x).tanh()
            gate = self.gate(h).sigmoid()
            return self.outlet(h + gate * self.scale + gate * h.mean(0).detach())[:, 0]

    return Classifier(Gated(), F.mse_loss, lr=3e-3), loader(*line()), {}
