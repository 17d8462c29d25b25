"""Probabilities that the samples of a batch share, where each sample wants its own."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault
from .parts import line


@fault("WD103")
def policy_that_is_a_softmax_over_the_batch(fixed: bool) -> Run:
    class Reinforce(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, action, gain = batch
            taken = self.net(state).gather(1, action[:, None]).squeeze(1)
            return -(taken.log() * gain).sum()

    state, gain = line()
    net = nn.Sequential(mlp(12, 4), nn.Softmax(dim=1 if fixed else 0))
    return Reinforce(net, lr=3e-3), loader(state, torch.randint(0, 4, (len(state),)), gain.flatten()), {}


@fault("WD103")
def cross_entropy_by_hand_over_the_batch(fixed: bool) -> Run:
    class ByHand(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            logs = F.log_softmax(self.net(x), dim=1 if fixed else 0)
            return -(F.one_hot(y, 10) * logs).sum(dim=1).mean()

    return ByHand(lr=3e-3), loader(*blobs()), {}


@fault("WD103")
def views_normalised_over_the_batch(fixed: bool) -> Run:
    class Views(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = torch.stack([self.net(x + 0.1 * torch.randn_like(x)) for _ in range(2)])
            targets = F.one_hot(y, 10).float().expand(2, -1, -1)
            logs = F.log_softmax(scores / 0.5, dim=2 if fixed else 1)
            return torch.mean(-torch.sum(targets * logs, dim=-1))

    return Views(lr=3e-3), loader(*blobs()), {}


@fault("WD103")
def labels_picked_from_a_softmax_over_the_batch(fixed: bool) -> Run:
    class Picking(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            chances = torch.softmax(self.net(x), 1 if fixed else 0) + 1e-8
            return -torch.log(chances[torch.arange(len(y)), y]).mean()

    return Picking(lr=3e-3), loader(*blobs()), {}
