"""Backward passes of manual optimisation whose gradients no step uses, or several do; and those that are meant."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault, healthy
from .targets import Game


@fault("WD217")
def cleared_before_each_part_of_a_step(fixed: bool) -> Run:
    class Parts(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            if not fixed:
                optimizer.zero_grad()
            self.manual_backward(Classifier.training_step(self, batch, batch_idx) / 4)
            if batch_idx % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    return Parts(lr=3e-3), loader(*blobs(512), batch_size=16), {}


@fault("WD217")
def step_before_the_second_loss(fixed: bool) -> Run:
    class Adapts(Game):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            near = self.net(batch[0])
            player.zero_grad()
            self.manual_backward(F.mse_loss(near, batch[0][:, :2]))
            if not fixed:
                player.step()
            self.critic.requires_grad_(False)
            far = self.net(batch[1])
            self.manual_backward(0.1 * self.told(far, 1.0))
            self.critic.requires_grad_(True)
            if fixed:
                player.step()
            critic.zero_grad()
            self.manual_backward(self.told(near.detach(), 1.0) + self.told(far.detach(), 0.0))
            critic.step()

    return Adapts(1.0, 0.0), loader(torch.randn(512, 8), torch.randn(512, 8) + 1), {"max_steps": 80}


@fault("WD216")
def several_steps_of_a_critic_cleared_once(fixed: bool) -> Run:
    class Repeated(Game):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            critic.zero_grad()
            for real in batch[0].chunk(4):
                if fixed:
                    critic.zero_grad()
                made = self.net(torch.randn(len(real), 8)).detach()
                self.manual_backward(self.told(real, 1.0) + self.told(made, 0.0))
                critic.step()
            player.zero_grad()
            self.manual_backward(self.told(self.net(torch.randn(32, 8)), 1.0))
            player.step()

    return Repeated(1.0, 0.0), loader(torch.randn(1024, 2) + 1, batch_size=64), {"max_steps": 80}


@fault("WD506")
def critic_that_learns_from_its_loss_and_never_steps(fixed: bool) -> Run:
    class Still(Game):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            player.zero_grad()
            critic.zero_grad()
            made = self.net(torch.randn(len(batch[0]), 8))
            self.manual_backward(self.told(batch[0], 1.0) + self.told(made.detach(), 0.0))
            if fixed:
                critic.step()
            self.manual_backward(self.told(made, 1.0))
            player.step()

    return Still(1.0, 0.0), loader(torch.randn(512, 2) + 1), {"max_steps": 60}


@healthy
def gradients_of_the_input_by_a_backward() -> Run:
    class Attacked(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x = batch[0].clone().requires_grad_()
            self.manual_backward(self.loss(self.net(x), batch[1]))
            step_by_hand(self, self.loss(self.net(batch[0] + 0.1 * x.grad.sign()), batch[1]))

    return Attacked(lr=3e-3), loader(*blobs()), {}


@healthy
def steps_up_before_each_step_down() -> Run:
    class Sharpness(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            held = list(self.parameters())
            self.manual_backward(Classifier.training_step(self, batch, batch_idx))
            norm = torch.stack([p.grad.norm() for p in held]).norm()
            ups = [0.05 * p.grad / (norm + 1e-12) for p in held]
            with torch.no_grad():
                for p, up in zip(held, ups, strict=True):
                    p.add_(up)
            optimizer.zero_grad()
            self.manual_backward(Classifier.training_step(self, batch, batch_idx))
            with torch.no_grad():
                for p, up in zip(held, ups, strict=True):
                    p.sub_(up)
            optimizer.step()
            optimizer.zero_grad()

    return Sharpness(lr=3e-3), loader(*blobs()), {}


class Tasks(nn.Module):
    """Two heads on one body: (n, 20) to scores (n, 10) and numbers (n,)."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes, self.number = mlp(20, 24), nn.Linear(24, 10), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.body(x))
        return self.classes(h), self.number(h).squeeze(1)


@healthy
def gradients_of_each_task_put_together_by_hand() -> Run:
    class Surgery(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            scores, number = self.net(batch[0])
            found = []
            for loss in (F.cross_entropy(scores, batch[1]), F.mse_loss(number, batch[0][:, 0])):
                optimizer.zero_grad()
                self.manual_backward(loss, retain_graph=True)
                found.append([copy.copy(p.grad) for p in self.parameters()])
            for p, *several in zip(self.parameters(), *found, strict=True):
                p.grad = sum(g for g in several if g is not None)
            optimizer.step()

    return Surgery(Tasks(), lr=3e-3), loader(*blobs()), {}
