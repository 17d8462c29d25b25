"""Samples of optimizer attempts: every head of an alternation and every phase of an accumulation is met."""

import itertools
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
from sanity_watchdog.observe.sampling import EARLY, PAIRS, SHARE, STRIDE, Pace, sampled
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


class Work:
    """A clock that steps and looks move."""

    def __init__(self, every: int, step: float, look: float, together: bool = False) -> None:
        self.now = 0.0
        self.pace = Pace(every, together, clock=lambda: self.now)
        self.step, self.look = step, look

    def looked(self, steps: int) -> list[int]:
        found = []
        for attempt in range(steps):
            self.now += self.step
            if self.pace.due(attempt, 1, attempt):
                found.append(attempt)
                with self.pace.looking():
                    self.now += self.look
        return found


def test_what_costs_little_is_looked_at_by_plan() -> None:
    assert Work(EVERY, step=1.0, look=0.4).looked(20_000) == attempts(EVERY, 20_000)


def test_long_runs_of_short_steps_are_looked_at_more_rarely() -> None:
    work = Work(EVERY, step=1.0, look=3.0)
    found = [a for a in work.looked(100_000) if a > 55]
    first = [a for a in attempts(EVERY, EVERY * (PAIRS + 1)) if a > 55]
    assert found[: 2 * PAIRS] == first
    assert {b - a for a, b in itertools.pairwise(found[2 * PAIRS - 2 :: 2])} == {EVERY, STRIDE * EVERY}
    assert all(b == a + 1 for a, b in zip(found[::2], found[1::2], strict=True))
    assert 0.95 * SHARE < len(found) * work.look / 100_000 < 1.05 * SHARE


@pytest.mark.parametrize("period", range(2, 6))
@pytest.mark.parametrize("look", [0.7, 1.5, 3.0, 40.0])
def test_however_rarely_every_head_is_met_equally_often(period: int, look: float) -> None:
    counts = [0] * period
    for attempt in Work(EVERY, step=1.0, look=look).looked(500_000):
        counts[attempt % period] += attempt > 1_100
    assert max(counts) < 1.35 * min(counts)


@pytest.mark.parametrize(("every", "together"), [(50, False), (1, False), (EVERY, True)])
def test_what_was_asked_for_or_agreed_on_is_kept_to(every: int, together: bool) -> None:
    work = Work(every, step=1.0, look=50.0, together=together)
    assert work.looked(5_000) == attempts(every, 5_000)


def test_what_was_spent_early_is_not_held_against_the_rest() -> None:
    work = Work(EVERY, step=1.0, look=0.0)
    with work.pace.looking():
        work.now += 1e6
    assert work.looked(5_000) == attempts(EVERY, 5_000)


def test_all_batches_of_an_attempt_that_is_looked_at_are() -> None:
    work = Work(EVERY, step=1.0, look=3.0)
    seen: dict[int, list[bool]] = defaultdict(list)
    for batch in range(4 * 3_000):
        work.now += 0.25
        due = work.pace.due(batch // 4, 1, batch)
        seen[batch // 4].append(due)
        if due:
            with work.pace.looking():
                work.now += work.look
    assert {len(set(parts)) for parts in seen.values()} == {1}
    assert len([a for a, parts in seen.items() if parts[0] and a > 1_100]) < len(attempts(EVERY, 3_000)) // 3
