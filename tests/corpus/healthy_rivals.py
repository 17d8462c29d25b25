"""Healthy games of two players, and players that rightly agree."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Manual, blobs, loader, mlp

from .case import Run, healthy
from .rivals import Rivals, bce, points, told_apart


@healthy
def answers_turned_round_for_both() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return bce(real, torch.zeros_like(real)) + bce(made, torch.ones_like(made))

    return Rivals(judged, lambda s: bce(s, torch.zeros_like(s))), points(), {}


@healthy
def generator_that_maximises_the_loss_of_the_other() -> Run:
    return Rivals(told_apart, lambda s: -bce(s, torch.zeros_like(s))), points(), {}


@healthy
def logarithms_by_hand_and_a_sigmoid() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return -(torch.log(real + 1e-6) + torch.log(1 - made + 1e-6)).mean()

    critic = nn.Sequential(mlp(2, 1), nn.Sigmoid())
    return Rivals(judged, lambda s: torch.log(1 - s + 1e-6).mean(), critic), points(), {}


@healthy
def hinge_with_its_signs() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return F.relu(1.0 - real).mean() + F.relu(1.0 + made).mean()

    return Rivals(judged, lambda s: -s.mean()), points(), {}


@healthy
def squares_between_two_answers() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return (real - 1).square().mean() + (made + 1).square().mean()

    return Rivals(judged, lambda s: s.square().mean()), points(), {}


@healthy
def answers_relative_to_the_other_kind() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return F.softplus(-(real - made)).mean()

    class Relative(Rivals):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            real = self.critic(batch[0]).detach()
            self.made = lambda s: F.softplus(-(s - real)).mean()
            super().training_step(batch, batch_idx)

    return Relative(judged, None), points(), {}


@healthy
def energy_and_its_sampler() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return real.mean() - made.mean() + 0.1 * (real.square() + made.square()).mean()

    return Rivals(judged, lambda s: s.mean()), points(), {}


@healthy
def encoder_and_estimator_of_information() -> Run:
    class Informed(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(20, 4))
            self.judge = mlp(24, 1)

        def between(self, x: Tensor, z: Tensor) -> Tensor:
            joint = self.judge(torch.cat([x, z], 1))
            apart = self.judge(torch.cat([x, z.roll(1, 0)], 1))
            return F.softplus(-joint).mean() + F.softplus(apart).mean()

        def training_step(self, batch: Any, batch_idx: int) -> None:
            encoder, judge = self.optimizers()
            judge.zero_grad()
            self.manual_backward(self.between(batch[0], self.net(batch[0]).detach()))
            judge.step()
            encoder.zero_grad()
            self.manual_backward(self.between(batch[0], self.net(batch[0])))
            encoder.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.judge)]

    return Informed(), loader(blobs()[0]), {}


@healthy
def critic_of_actions_and_their_actor() -> Run:
    class Actor(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(20, 2))
            self.critic = mlp(22, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, done, cost = batch
            actor, critic = self.optimizers()
            critic.zero_grad()
            held = self.critic(torch.cat([x, self.net(x).detach()], 1)).mean()
            known = self.critic(torch.cat([x, done], 1))
            self.manual_backward(F.mse_loss(known.squeeze(1), cost) + 0.1 * (held - known.mean()))
            critic.step()
            actor.zero_grad()
            self.manual_backward(-self.critic(torch.cat([x, self.net(x)], 1)).mean())
            actor.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.critic)]

    x, _ = blobs()
    done = torch.randn(len(x), 2)
    return Actor(), loader(x, done, -(done - x[:, :2]).square().sum(1)), {}
