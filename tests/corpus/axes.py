"""Axes that meet by broadcasting, samples that are mixed, classes that lie on another axis."""

from typing import Any

import torch
import torch.nn.functional as F

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .parts import line


@fault("WD104")
def column_of_actions_times_row_of_gains(fixed: bool) -> Run:
    class Reinforce(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, action, gain = batch
            taken = self.net(state).log_softmax(1).gather(1, action[:, None])
            return -((taken.squeeze(1) if fixed else taken) * (gain - gain.mean())).mean()

    state, gain = line()
    return Reinforce(mlp(12, 4), lr=3e-3), loader(state, torch.randint(0, 4, (len(state),)), gain), {}


@fault("WD104")
def weights_of_samples_as_a_column(fixed: bool) -> Run:
    class Weighted(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, weight = batch
            losses = F.cross_entropy(self.net(x), y, reduction="none")
            return (losses * (weight[:, 0] if fixed else weight)).sum() / weight.sum()

    x, y = blobs()
    return Weighted(lr=3e-3), loader(x, y, 0.5 + torch.rand(len(x), 1)), {}


@fault("WD104")
def errors_divided_by_lengths(fixed: bool) -> Run:
    class Divided(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y, length = batch
            errors = (self.net(x) - y[:, None]).square()
            step_by_hand(self, (errors / (length[:, None] if fixed else length)).sum(-1).mean())

    x, y = line(256)
    lengths = torch.randint(1, 7, (256,)).float()
    return Divided(mlp(12, 1), lr=3e-3), loader(x, y, lengths, batch_size=16), {}


@fault("WD104")
def value_of_the_next_state_as_a_column(fixed: bool) -> Run:
    class Values(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, reward, after = batch
            with torch.no_grad():
                wanted = (reward[:, None] if fixed else reward) + 0.9 * self.net(after)
            return F.smooth_l1_loss(self.net(state), wanted)

    state, reward = line()
    return Values(mlp(12, 1), lr=3e-3), loader(state, reward, state + 0.1 * torch.randn_like(state)), {}
