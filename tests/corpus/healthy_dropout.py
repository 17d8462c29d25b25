"""Healthy dropout near a loss."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


@healthy
def mean_over_several_dropouts_before_one_head() -> Run:
    class Several(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.head = nn.Linear(32, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h = self.net(batch[0]).relu()
            scores = torch.stack([self.head(F.dropout(h, p)) for p in (0.1, 0.3, 0.5)]).mean(0)
            return self.loss(scores, batch[1])

    return Several(), loader(*blobs()), {}


@healthy
def dropped_features_compared_with_a_teachers() -> Run:
    class Taught(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.teacher, self.head = deepcopy(self.net).requires_grad_(False), nn.Linear(16, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0] + 0.2 * torch.randn_like(batch[0])
            features = F.dropout(self.net(x), 0.1)
            return self.loss(self.head(features), batch[1]) + 0.1 * F.mse_loss(features, self.teacher(batch[0]))

    return Taught(), loader(*blobs()), {}


@healthy
def projection_dropped_and_added_to_its_input() -> Run:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.mix, self.head = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            h = self.inlet(x)
            h = h + F.dropout(self.mix(h.relu()), 0.2, self.training)
            return self.head(h)

    return Classifier(Residual()), loader(*blobs()), {}


@healthy
def penalty_on_dropped_states() -> Run:
    class Penalised(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            dropped = F.dropout(scores, 0.4)
            return self.loss(scores, batch[1]) + 1e-3 * dropped.square().mean()

    return Penalised(), loader(*blobs()), {}


@healthy
def frames_before_dropped_in_every_mode() -> Run:
    class Frames(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 24))
            self.cell, self.out = nn.GRUCell(24, 24), nn.Linear(24, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            frames = batch[0]
            state, before, error = frames.new_zeros(len(frames), 24), torch.zeros_like(frames[:, 0]), 0.0
            for frame in frames.unbind(1):
                seen = F.dropout(self.net(before).relu(), 0.5, training=True)
                state, before = self.cell(seen, state), frame
                error = error + F.l1_loss(self.out(state), frame)
            return error

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("error", self.training_step(batch, batch_idx))

    frames = torch.sin(torch.arange(6.0)[:, None] + torch.rand(320, 1, 8) * 6)
    return Frames(), loader(frames), {"validation": loader(frames[:64])}
