"""Scores of one player for what another makes, as losses pull them."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.evidence.targets import Alliance
from tests.corpus.rivals import Rivals, told_apart
from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched

Judged, Made = Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]


def apart(real: Tensor, made: Tensor) -> Tensor:
    return made.mean() - real.mean()


def towards(target: float) -> Made:
    return lambda s: F.mse_loss(s, torch.full_like(s, target))


def answered(answer: float) -> Made:
    return lambda s: F.binary_cross_entropy_with_logits(s, torch.full_like(s, answer))


def by_sigmoid(real: Tensor, made: Tensor) -> Tensor:
    return -(real.sigmoid().log() + (1 - made.sigmoid()).log()).mean()


def by_logsigmoid(real: Tensor, made: Tensor) -> Tensor:
    return -(F.logsigmoid(real) + F.logsigmoid(-made)).mean()


GAMES: dict[str, tuple[Judged, Made, bool]] = {
    "means": (apart, lambda s: -s.mean(), False),
    "means, wrong": (apart, lambda s: s.mean(), True),
    "means, turned twice": (apart, lambda s: -(-s).mean(), True),
    "means, from one": (apart, lambda s: 1 - s.mean(), False),
    "weighed": (lambda r, m: 0.1 * apart(r, m), lambda s: -3 * s.sum() / 7, False),
    "weighed, wrong": (lambda r, m: 0.1 * apart(r, m), lambda s: 3 * s.sum() / 7, True),
    "answers": (told_apart, answered(1.0), False),
    "answers, smooth": (told_apart, answered(0.9), False),
    "answers, wrong": (told_apart, answered(0.0), True),
    "answers, wrong and smooth": (told_apart, answered(0.1), True),
    "answers, undecided": (told_apart, answered(0.5), False),
    "sigmoids": (by_sigmoid, lambda s: -s.sigmoid().log().mean(), False),
    "sigmoids, wrong": (by_logsigmoid, lambda s: F.softplus(s).mean(), True),
    "squares": (lambda r, m: towards(1.0)(r) + towards(0.0)(m), towards(1.0), False),
    "squares, wrong": (lambda r, m: towards(1.0)(r) + (m**2).mean(), towards(0.0), True),
    "squares, between": (lambda r, m: ((r - 1) ** 2).mean() + ((m + 1) ** 2).mean(), towards(0.0), False),
    "one answer for both": (lambda r, m: towards(0.0)(r) + towards(0.0)(m), towards(0.0), False),
    "made alone": (lambda r, m: m.mean(), lambda s: s.mean(), False),
    "both ways": (lambda r, m: apart(r, m) - 2 * m.mean(), lambda s: s.mean(), False),
}


def rows() -> object:
    return loader(torch.randn(64, 2))


@pytest.mark.parametrize("name", GAMES)
def test_games(name: str) -> None:
    judged, made, allied = GAMES[name]
    dog = watched(Rivals(judged, made), rows(), max_steps=4)
    assert ("WD117" in codes(dog)) is allied
    assert "WD117" in dog.summary.judged
    assert_awake(dog)


def test_one_optimizer_plays_no_game() -> None:
    dog = watched(Classifier(), loader(*blobs()), max_steps=4)
    assert "WD117" not in dog.summary.judged
    assert Alliance().where == ""


def test_a_discriminator_that_is_not_kept_from_the_generator_is_not_judged() -> None:
    class Attached(Rivals):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
            player, judge = self.optimizers()
            made = self.net(torch.randn(len(batch[0]), 8))
            judge.zero_grad()
            self.manual_backward(apart(self.critic(batch[0]), self.critic(made)), retain_graph=True)
            judge.step()
            player.zero_grad()
            self.manual_backward(self.critic(self.net(torch.randn(len(batch[0]), 8))).mean())
            player.step()

    assert "WD117" not in codes(watched(Attached(apart, answered(0.0)), rows(), max_steps=4))


@pytest.mark.parametrize("answer", [1.0, 0.0])
def test_real_and_made_samples_may_have_a_backward_pass_each(answer: float) -> None:
    class Apart(Rivals):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
            player, judge = self.optimizers()
            judge.zero_grad()
            self.manual_backward(answered(1.0)(self.critic(batch[0])))
            made = self.net(torch.randn(len(batch[0]), 8))
            self.manual_backward(answered(0.0)(self.critic(made.detach())))
            judge.step()
            player.zero_grad()
            answered(answer)(self.critic(made)).backward()
            player.step()

    dog = watched(Apart(apart, answered(answer)), rows(), max_steps=4)
    assert ("WD117" in codes(dog)) is (answer == 0.0)
    assert_awake(dog)
