"""Generators that do what their discriminator or critic wants."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.runs import Manual, loader, mlp

from .case import Run, fault

bce = F.binary_cross_entropy_with_logits


class Rivals(Manual):
    """``judged(real, made)`` is the critic's loss, ``made(made)`` the generator's."""

    def __init__(
        self,
        judged: Callable[[Tensor, Tensor], Tensor],
        made: Callable[[Tensor], Tensor],
        critic: nn.Module | None = None,
        rounds: int = 1,
    ) -> None:
        super().__init__(mlp(8, 2))
        self.critic = mlp(2, 1) if critic is None else critic
        self.judged, self.made, self.rounds = judged, made, rounds

    def training_step(self, batch: Any, batch_idx: int) -> None:
        player, judge = self.optimizers()
        x = batch[0]
        for _ in range(self.rounds):
            with torch.no_grad():
                made = self.net(torch.randn(len(x), 8))
            judge.zero_grad()
            self.manual_backward(self.judged(self.critic(x), self.critic(made)))
            judge.step()
        player.zero_grad()
        self.manual_backward(self.made(self.critic(self.net(torch.randn(len(x), 8)))))
        player.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.critic)]


def points() -> Any:
    return loader(torch.randn(512, 2) + 1)


def told_apart(real: Tensor, made: Tensor) -> Tensor:
    return (bce(real, torch.ones_like(real)) + bce(made, torch.zeros_like(made))) / 2


@fault("WD117")
def generator_told_that_it_is_false(fixed: bool) -> Run:
    return Rivals(told_apart, lambda s: bce(s, torch.full_like(s, float(fixed)))), points(), {}


@fault("WD117")
def critics_score_with_the_same_sign(fixed: bool) -> Run:
    sign = -1 if fixed else 1
    return Rivals(lambda real, made: made.mean() - real.mean(), lambda s: sign * s.mean(), rounds=3), points(), {}


@fault("WD117")
def critic_that_is_turned_round() -> Run:
    return Rivals(lambda real, made: real.mean() - made.mean(), lambda s: -s.mean()), points(), {}


@fault("WD117")
def hinge_with_the_wrong_sign_for_the_generator() -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return F.relu(1.0 - real).mean() + F.relu(1.0 + made).mean()

    critic = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(2, 32)), nn.ReLU(), parametrizations.spectral_norm(nn.Linear(32, 1))
    )
    return Rivals(judged, lambda s: s.mean(), critic), points(), {}


@fault("WD117")
def squares_that_want_the_same(fixed: bool) -> Run:
    def judged(real: Tensor, made: Tensor) -> Tensor:
        return 0.5 * ((real - 1) ** 2).mean() + 0.5 * (made**2).mean()

    return Rivals(judged, lambda s: F.mse_loss(s, torch.full_like(s, float(fixed)))), points(), {}


@fault("WD117")
def real_and_made_samples_each_with_a_backward_pass(fixed: bool) -> Run:
    class Apart(Rivals):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, judge = self.optimizers()
            x, one = batch[0], torch.tensor(1.0)
            judge.zero_grad()
            self.manual_backward(self.critic(x).mean(), gradient=-one)
            self.manual_backward(self.critic(self.net(torch.randn(len(x), 8)).detach()).mean(), gradient=one)
            judge.step()
            player.zero_grad()
            scores = self.critic(self.net(torch.randn(len(x), 8)))
            self.manual_backward(scores.mean(), gradient=-one if fixed else one)
            player.step()

    return Apart(told_apart, torch.mean), points(), {}


@fault("WD314")
def generator_behind_a_detach(fixed: bool) -> Run:
    class Detached(Rivals):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, judge = self.optimizers()
            x = batch[0]
            made = self.net(torch.randn(len(x), 8))
            judge.zero_grad()
            self.manual_backward(self.judged(self.critic(x), self.critic(made.detach())))
            judge.step()
            player.zero_grad()
            self.manual_backward(self.made(self.critic(made if fixed else made.detach())))
            player.step()

    return Detached(told_apart, lambda s: bce(s, torch.ones_like(s)), mlp(2, 1, 256)), points(), {}


@fault("WD314")
def policy_behind_its_data(fixed: bool) -> Run:
    class Actor(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(2, 2))
            self.critic = mlp(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, judge = self.optimizers()
            x = batch[0]
            action = self.net(x).tanh()
            judge.zero_grad()
            value = self.critic(torch.cat([x, action.detach()], 1)).squeeze(1)
            self.manual_backward(F.mse_loss(value, -(action.detach() - x).square().sum(1)))
            judge.step()
            player.zero_grad()
            self.manual_backward(-self.critic(torch.cat([x, action if fixed else action.data], 1)).mean())
            player.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.critic)]

    return Actor(), points(), {}
