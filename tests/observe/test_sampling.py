"""Samples of optimizer attempts: every head of an alternation and every phase of an accumulation is met."""

from collections import defaultdict
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe import registry
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import Observer
from sanity_watchdog.observe.sampling import EARLY, sampled
from tests.runs import Classifier, Manual, assert_awake, blobs, loader, watched

EVERY = 101


def attempts(every: int, until: int) -> list[int]:
    return [a for a in range(until) if sampled(a, every)]


def test_early_attempts_are_dense_and_later_ones_come_in_pairs() -> None:
    assert attempts(EVERY, 400) == [*sorted(EARLY), 101, 102, 202, 203, 303, 304]


def test_every_attempt_can_be_sampled() -> None:
    assert attempts(1, 200) == list(range(200))


@pytest.mark.parametrize("period", range(2, 6))
@pytest.mark.parametrize("phase", range(5))
def test_every_head_of_an_alternation_is_met_early_and_late(period: int, phase: int) -> None:
    head = phase % period
    early = [a for a in attempts(EVERY, 56) if a % period == head]
    late = [a for a in attempts(EVERY, EVERY * period + 2) if a > 55 and a % period == head]
    assert len(early) >= 1
    assert len(late) >= 1


@pytest.mark.parametrize("period", range(2, 6))
def test_heads_are_met_equally_often_in_the_long_run(period: int) -> None:
    counts = [0] * period
    for attempt in attempts(EVERY, EVERY * period * 100):
        counts[attempt % period] += attempt > 55
    assert max(counts) - min(counts) <= 4


@pytest.mark.parametrize("every", [3, 50, 101, 997])
def test_samples_cost_little(every: int) -> None:
    long = attempts(every, 100_000)
    assert len(long) <= len(EARLY) + 2 * 100_000 / every + 2


class Recorder(Observer):
    """Writes down which moments were sampled."""

    seen: ClassVar[dict[str, list[Any]]] = {}

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if at.sampled:
            self.seen["backward"].append((at.attempt, at.batch))

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if at.sampled:
            heads = {g["name"] for g in optimizer.param_groups}
            self.seen["step"].append((at.attempt, min(heads)))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(Recorder, "seen", defaultdict(list))
    monkeypatch.setattr(Recorder, "codes", ("WD0",))
    monkeypatch.setattr("sanity_watchdog.callback.OBSERVERS", (*registry.OBSERVERS[:1], Recorder))
    return Recorder


class Alternating(Manual):
    """Trains one of ``period`` heads per batch, each by its own optimizer."""

    def __init__(self, period: int) -> None:
        super().__init__(nn.ModuleList(nn.Linear(20, 10) for _ in range(period)))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        i = self.trainer.fit_loop.total_batch_idx % len(self.net)
        optimizer = self.optimizers()[i]
        optimizer.zero_grad()
        self.manual_backward(self.loss(self.net[i](x), y))
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD([{"params": head.parameters(), "name": str(i)}], lr=0.01) for i, head in enumerate(self.net)
        ]


@pytest.mark.parametrize("period", range(2, 6))
def test_a_run_with_alternating_heads_shows_every_head(period: int, recorder: type[Recorder]) -> None:
    dog = SanityWatchdog(fail_on=None, every_n_steps=11)
    watched(Alternating(period), loader(*blobs(64), batch_size=8), watchdog=dog, max_steps=120, max_epochs=-1)
    early = {head for attempt, head in recorder.seen["step"] if attempt <= 55}
    late = {head for attempt, head in recorder.seen["step"] if attempt > 55}
    assert early == late == {str(i) for i in range(period)}
    assert_awake(dog, 1)


class Named(Classifier):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([{"params": self.parameters(), "name": "all"}], lr=0.01)


@pytest.mark.parametrize("accumulate", range(2, 9))
def test_every_phase_of_an_accumulation_and_its_step_are_seen(accumulate: int, recorder: type[Recorder]) -> None:
    dog = SanityWatchdog(fail_on=None)
    watched(
        Named(),
        loader(*blobs(64), batch_size=4),
        watchdog=dog,
        max_steps=14,
        max_epochs=-1,
        accumulate_grad_batches=accumulate,
    )
    whole = 16 - 16 % accumulate  # Lightning steps early at the end of an epoch
    phases = {batch % 16 % accumulate for _, batch in recorder.seen["backward"] if batch % 16 < whole}
    assert phases == set(range(accumulate))
    assert [attempt for attempt, _ in recorder.seen["step"]] == attempts(EVERY, 14)
    together = defaultdict(int)
    for attempt, _ in recorder.seen["backward"]:
        together[attempt] += 1
    assert together[0] == accumulate
    assert_awake(dog, 1)
