"""Batches whose first axis may be time: one item at a time, rows of a stream, and the faults that look like them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.loaders import gathers
from tests.runs import Classifier, assert_awake, codes, loader, watched

LATER, FIRST = nn.GRU(5, 8, bidirectional=True), nn.GRU(5, 8, batch_first=True, bidirectional=True)
CELL = nn.GRUCell(5, 16)
WIDE, LAYER = nn.Conv1d(5, 16, 3, padding=1), nn.TransformerEncoderLayer(16, 2, 16, 0.0)
ONE = "the axis of the samples is not known"
IN_ORDER = "made one sequence"


class Steps(nn.Module):
    """Scores (n, 4) of rows (n, 5)."""

    def __init__(self, net: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.run, self.inlet, self.head = net, run, nn.Linear(5, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.run(self.net, self.inlet(x) if self.net is LAYER else x))


def one_by_one(cell: nn.Module, x: Tensor) -> Tensor:
    states = [torch.zeros(1, 16)]
    for row in x:
        states.append(cell(row[None], states[-1]))
    return torch.cat(states[1:])


RUNS: dict[str, tuple[nn.Module, Callable[[Any, Tensor], Tensor]]] = {
    "batch first": (FIRST, lambda net, x: net(x[None])[0][0]),
    "time first": (LATER, lambda net, x: net(x[:, None])[0][:, 0]),
    "time first by a view": (LATER, lambda net, x: net(x.view(len(x), 1, -1))[0].view(len(x), -1)),
    "time first by permute": (LATER, lambda net, x: net(x[None].permute(1, 0, 2))[0][:, 0]),
    "unbatched": (LATER, lambda net, x: net(x)[0]),
    "convolution": (WIDE, lambda net, x: net(x.T[None])[0].T),
    "unbatched convolution": (WIDE, lambda net, x: net(x.T).T),
    "packed": (LATER, lambda net, x: net(pack_sequence([x]))[0].data),
    "attention without a batch": (LAYER, lambda net, x: net(x)),
    "attention": (LAYER, lambda net, x: net(x[:, None])[:, 0]),
    "cell": (CELL, one_by_one),
}
MIXES_ALL = (*tuple(RUNS)[:5], "attention without a batch", "attention")


def data(n: int = 96) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 5), torch.randint(0, 4, (n,))


def looked_at(net: nn.Module, source: Any) -> SanityWatchdog:
    dog = watched(Classifier(net), source, max_steps=1)
    assert_awake(dog)
    return dog


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_rows_that_are_not_shuffled_may_be_one_sequence(run: Any) -> None:
    dog = looked_at(Steps(*run), loader(*data(), shuffle=False))
    assert "WD131" not in codes(dog)
    assert IN_ORDER in dog.summary.skipped["WD131"]


@pytest.mark.parametrize("run", MIXES_ALL)
def test_shuffled_rows_are_no_sequence(run: str) -> None:
    assert "WD131" in codes(looked_at(Steps(*RUNS[run]), loader(*data())))


@pytest.mark.parametrize("shuffle", [True, False])
def test_samples_that_came_with_an_axis_of_one_step(shuffle: bool) -> None:
    x, y = data()
    net = Steps(LATER, lambda net, x: net(x)[0][:, 0])  # type: ignore[operator]
    assert "WD131" in codes(looked_at(net, loader(x[:, None], y, shuffle=shuffle)))


def items() -> list[tuple[Tensor, Tensor]]:
    return [data(9 + i % 4) for i in range(12)]


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("kwargs", [{"batch_size": None}, {"batch_size": 1, "collate_fn": lambda rows: rows[0]}])
def test_the_steps_of_one_item_are_no_samples(run: Any, kwargs: dict[str, Any]) -> None:
    source: Any = DataLoader(items(), shuffle=True, **kwargs)  # type: ignore[arg-type]
    dog = looked_at(Steps(*run), source)
    assert "WD131" not in codes(dog)
    assert ONE in dog.summary.skipped["WD131"]


def test_items_laid_end_to_end_are_no_samples() -> None:
    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        return tuple(map(torch.cat, zip(*rows, strict=True)))

    dog = looked_at(Steps(*RUNS["batch first"]), DataLoader(items(), 4, True, collate_fn=collate))  # type: ignore[arg-type]
    assert "WD131" not in codes(dog)
    assert ONE in dog.summary.skipped["WD131"]


class Drawn:
    """A batch sampler whose batches are of a size that nothing tells."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(96).view(6, 16).tolist())

    def __len__(self) -> int:
        return 6


ROWS = TensorDataset(*data())
SEVERAL: dict[str, dict[str, Any]] = {
    "size": {"batch_size": 16, "shuffle": True},
    "batch sampler of torch": {"batch_sampler": BatchSampler(RandomSampler(ROWS), 16, False)},
    "batch sampler of the user": {"batch_sampler": Drawn()},
    "batches of indices": {"batch_size": None, "sampler": BatchSampler(RandomSampler(ROWS), 16, False)},
}
SINGLE: dict[str, dict[str, Any]] = {
    "no batches": {"batch_size": None},
    "one at a time": {"batch_size": 1},
    "one in order": {"batch_sampler": BatchSampler(SequentialSampler(ROWS), 1, False)},
}


@pytest.mark.parametrize("kwargs", SEVERAL.values(), ids=SEVERAL)
def test_samples_that_a_loader_gathers(kwargs: dict[str, Any]) -> None:
    source: Any = DataLoader(ROWS, **kwargs)
    assert gathers(source)
    over_the_batch = Steps(nn.Linear(5, 16), lambda net, x: net(x) + net(x).mean(0))  # type: ignore[operator]
    assert "WD131" in codes(looked_at(over_the_batch, source))


@pytest.mark.parametrize("kwargs", SINGLE.values(), ids=SINGLE)
def test_items_that_a_loader_does_not_gather(kwargs: dict[str, Any]) -> None:
    assert not gathers(DataLoader(ROWS, **kwargs))
    assert not gathers([data()])
