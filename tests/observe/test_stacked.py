"""Samples along another axis than the first: where they are found, and faults that are still named there."""

from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from sanity_watchdog.observe.batches import Samples
from sanity_watchdog.observe.loaders import Drawn, drawn
from tests.runs import Classifier, assert_awake, codes, loader, mlp, watched

B, T, K = 16, 10, 5


class Heads(Classifier):
    """Several answers to (n, 20), stacked before the samples; ``mixes``: made of a mean over the samples."""

    def __init__(self, loss: str, mixes: bool, members: int = K) -> None:
        super().__init__(nn.ModuleList(nn.Linear(20, 3) for _ in range(members)))
        self.of_name, self.mixes, self.inlet = getattr(F, loss), mixes, nn.Linear(20, 20)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        h = self.inlet(x).tanh()
        h = h.softmax(0) @ torch.ones(20, 20) + h if self.mixes else h
        scores = torch.stack([head(h) for head in self.net])
        if self.of_name is F.cross_entropy:
            return self.of_name(scores.transpose(1, 2), (y[:, 0] > 0).long().expand(len(scores), -1))
        return self.of_name(scores, y.repeat(len(scores), 1, 1))


@pytest.mark.parametrize("members", [2, K, B, 3 * B])
@pytest.mark.parametrize("loss", ["mse_loss", "binary_cross_entropy_with_logits", "cross_entropy"])
@pytest.mark.parametrize("mixes", [True, False])
def test_answers_stacked_before_the_samples(loss: str, mixes: bool, members: int) -> None:
    data = loader(torch.randn(64, 20), torch.rand(64, 3) - (loss == "cross_entropy") * 0.5, batch_size=B)
    dog = watched(Heads(loss, mixes, members), data, max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) == mixes
    assert "WD131" in dog.summary.judged


class Teacher(Classifier):
    """Members that learn the answers of a network: nothing tells which of the axes the samples are."""

    def __init__(self) -> None:
        super().__init__(nn.ModuleList(nn.Linear(20, 3) for _ in range(K)))
        self.teacher = mlp(20, 3).requires_grad_(False)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = torch.stack([head(batch[0]) for head in self.net])
        return F.mse_loss(scores, self.teacher(batch[0]).expand_as(scores))


def test_scores_that_do_not_show_whose_they_are_are_left_alone() -> None:
    dog = watched(Teacher(), loader(torch.randn(64, 20), batch_size=B), max_steps=1)
    assert_awake(dog)
    assert "WD131" not in codes(dog)
    assert "not recognised" in dog.summary.skipped["WD131"]


class Members(Classifier):
    """Networks in one product over (members, n, 20)."""

    def __init__(self, spread: Any) -> None:
        super().__init__(nn.Module())
        self.weight, self.spread = nn.Parameter(torch.randn(K, 20, 10) * 0.2), spread

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss((self.spread(x) @ self.weight).mean(0), y)


SPREADS = [
    lambda x: x.expand(K, -1, -1),
    lambda x: x[None].repeat(K, 1, 1),
    lambda x: torch.tile(x, (K, 1, 1)),
    lambda x: torch.stack([x] * K),
    lambda x: x.repeat_interleave(K, 0).view(-1, K, 20).transpose(0, 1),
    lambda x: torch.cat([x] * K).view(K, -1, 20),
]


@pytest.mark.parametrize("spread", SPREADS)
def test_one_batch_for_all_members(spread: Any) -> None:
    y = torch.randint(0, 10, (64,))
    dog = watched(Members(spread), loader(torch.randn(64, 20), y, batch_size=B), max_steps=1)
    assert_awake(dog)
    assert "WD122" not in codes(dog)
    (alert,) = (
        a
        for a in watched(Members(spread), loader(torch.randn(20).expand(64, -1), y, batch_size=B), max_steps=1).alerts
        if a.code == "WD122"
    )
    assert f"all {B} samples are the same" in alert.message


class Series(Classifier):
    """A recurrence over numbers (time, samples), or over (samples, time) as if they were."""

    def __init__(self, batch_first: bool = False) -> None:
        super().__init__(nn.GRU(1, 8, batch_first=batch_first))
        self.head = nn.Linear(8, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.l1_loss(self.head(self.net(batch[..., None])[0])[..., 0], batch.square())


def series(t: int, time_first: bool, batch_size: int = B, n: int = 64, by_hand: bool = True) -> DataLoader[Any]:
    collate = (lambda rows: torch.stack(rows, int(time_first))) if by_hand else None
    return DataLoader(torch.randn(n, t), batch_size, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (series(T, True), False),
        (series(B, True), False),
        (series(T, True, batch_size=96), False),
        (series(T, False), True),
        (series(T, False, batch_size=96), True),
        (series(B, False, by_hand=False), True),
        (series(T, False, by_hand=False), True),
    ],
    ids=["time first", "square", "few series", "samples first", "few samples", "stacked square", "stacked"],
)
def test_the_collate_function_and_the_number_drawn_tell_the_axis(data: DataLoader[Any], found: bool) -> None:
    dog = watched(Series(), data, max_steps=1)
    assert_awake(dog)
    assert ("WD131" in codes(dog)) == found


def test_a_recurrence_over_samples_that_lie_beside_each_other() -> None:
    dog = watched(Series(batch_first=True), series(T, True), max_steps=1)
    assert_awake(dog)
    assert codes(dog) == ["WD131"]


@pytest.mark.parametrize("time_first", [True, False])
def test_samples_that_are_the_same_at_every_step_are_none_that_are_the_same(time_first: bool) -> None:
    levels = torch.randn(64, 1).expand(-1, T).contiguous()
    data = DataLoader(levels, B, collate_fn=lambda rows: torch.stack(rows, int(time_first)))  # type: ignore[arg-type]
    dog = watched(Series(), data, max_steps=1)
    assert_awake(dog)
    assert "WD122" not in codes(dog)


STEPS, SQUARE, TABLE = torch.zeros(T, B, 3), torch.zeros(B, B, 3), torch.zeros(B, 3)


@pytest.mark.parametrize(
    ("batch", "made_of", "count", "axes"),
    [
        (TABLE, Drawn(), B, [0]),
        (STEPS, Drawn(), T, [0]),
        (STEPS, Drawn(B), B, [1]),
        (STEPS, Drawn(B, stacked=True), T, [0]),
        (STEPS[..., 0], Drawn(B), B, [1]),
        ([STEPS, torch.zeros(B)], Drawn(B), B, [1, 0]),
        ([STEPS[..., 0], torch.zeros(T)], Drawn(B), T, [None, 0]),
        (SQUARE, Drawn(B), B, [None]),
        (SQUARE, Drawn(B, stacked=True), B, [0]),
        (SQUARE[..., 0], Drawn(), B, [0]),
        (SQUARE[..., 0], Drawn(B), B, [None]),
        (torch.zeros(2 * B, B), Drawn(B), 2 * B, [0]),
    ],
)
def test_where_the_samples_of_a_batch_lie(batch: Any, made_of: Drawn, count: int, axes: list[int | None]) -> None:
    where = Samples(batch, made_of)
    assert where.count == count
    assert [where.axis(t) for t in (batch if isinstance(batch, list) else [batch])] == axes


class Turned(L.LightningDataModule):
    """Brings (samples, time) in the order (time, samples) behind the loader."""

    def train_dataloader(self) -> Any:
        return series(T, False, by_hand=False)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch.T.contiguous()


class TurnedByItself(Series):
    on_after_batch_transfer = Turned.on_after_batch_transfer


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_batch_that_is_turned_round_on_its_way(by_itself: bool) -> None:
    module, data = (TurnedByItself(), series(T, False, by_hand=False)) if by_itself else (Series(), Turned())
    dog = watched(module, data, max_steps=1)
    assert_awake(dog)
    assert not codes(dog)
    assert "WD131" in dog.summary.judged


def test_what_a_loader_draws() -> None:
    data = TensorDataset(torch.zeros(24, 3))
    own = BatchSampler(RandomSampler(data), 8, False)
    assert drawn([]) == Drawn()
    assert drawn([DataLoader(data, 8)]) == Drawn(8, stacked=True)
    assert drawn([DataLoader(data, 8)], changed=True) == Drawn(8)
    assert drawn([DataLoader(data, 32)]) == Drawn(24, stacked=True)
    assert drawn([DataLoader(data, 8, collate_fn=list)]) == Drawn(8)
    assert drawn([DataLoader(data, batch_sampler=own)]) == Drawn(8, stacked=True)
    assert drawn([DataLoader(data, batch_size=None)]) == Drawn()
