"""Batches, fingerprints, the ledger and loaders, without a Trainer."""

import math
import random
import sys
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, Subset, TensorDataset

from sanity_watchdog.observe.batches import elements, follow
from sanity_watchdog.observe.calls import tensors_of
from sanity_watchdog.observe.fingerprints import fingerprint, kinds
from sanity_watchdog.observe.ledger import Ledger, unrolled
from sanity_watchdog.observe.loaders import (
    batch_size,
    copied_generators,
    drops_last,
    samples_per_epoch,
    shuffles,
)
from sanity_watchdog.observe.sums import Sums

X, Y = torch.randn(8, 4), torch.arange(8)
WALKS = {elements.__module__, tensors_of.__module__}


@dataclass
class Record:
    x: Tensor = field(default_factory=lambda: X)
    note: str = "n"


class Itself:
    def __init__(self) -> None:
        self.x, self.me = X, self


@pytest.mark.parametrize(
    ("batch", "paths"),
    [
        (X, ["batch"]),
        ([X, Y], ["batch[0]", "batch[1]"]),
        ({"x": X, "rest": (Y, "text", None)}, ["batch['x']", "batch['rest'][0]"]),
        (UserDict(ids=Y), ["batch['ids']"]),
        (Record(), ["batch.x"]),
        (Itself(), ["batch.x"]),
        ([X, X], ["batch[0]"]),
        ([X.to("meta"), 3, "x"], []),
    ],
    ids=["tensor", "list", "nested", "mapping", "dataclass", "cycle", "twice", "nothing"],
)
def test_every_tensor_has_its_path(batch: Any, paths: list[str]) -> None:
    found = elements(batch)
    assert [e.path for e in found] == paths
    for one in found:
        assert follow(batch, one.steps) is one.tensor


@pytest.mark.parametrize("walk", [elements, lambda batch: list(tensors_of(batch))], ids=["elements", "tensors_of"])
@pytest.mark.parametrize(
    "bare", [["a"] * 500, list(range(500)), (0.5, b"b", None, True, 1j) * 100], ids=["text", "whole", "mixed"]
)
def test_long_lists_without_tensors_are_not_walked(walk: Callable[[Any], list[Any]], bare: Any) -> None:
    def calls(batch: Any, found: int) -> int:
        ours = []

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            # Caches of abstract classes that miss and garbage that is collected meanwhile make calls as well.
            if event == "call" and frame.f_globals["__name__"] in WALKS:
                ours.append(frame.f_code.co_name)

        sys.setprofile(profile)
        try:
            tensors = walk(batch)
        finally:
            sys.setprofile(None)
        assert len(tensors) == found
        return len(ours)

    assert calls([X, bare, {"text": [bare, bare], "y": Y}], 2) < 50
    assert calls([X, [*bare, Y]], 2) > 500


def test_a_batch_of_another_structure_has_none_there() -> None:
    (one,) = elements({"x": X})
    for other in ({"y": X}, [X], None, {"x": "text"}):
        assert follow(other, one.steps) is None


def test_fingerprints_are_equal_exactly_where_batches_are() -> None:
    a, b = torch.randn(32, 300), torch.randn(32, 300)
    prints = [fingerprint(elements([x, Y])) for x in (a, b, a.clone(), b, a.t().contiguous().t())]
    numbers, variety = kinds(prints)
    assert numbers[:4] == [0, 1, 0, 1]
    assert variety > 200
    nan = torch.full((4, 4), math.nan)
    assert kinds([fingerprint(elements(nan)), fingerprint(elements(nan.clone()))])[0] == [0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.bool, torch.int64])
def test_every_format_has_a_fingerprint(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (16, 16)).to(dtype)
    numbers, variety = kinds([fingerprint(elements([x, x.sum()])), fingerprint(elements([x.clone(), x.sum()]))])
    assert numbers == [0, 0]
    assert variety >= 2


def test_the_ledger_gives_back_what_the_last_batches_wrote() -> None:
    ledger = Ledger(4)
    column = ledger.column("loss", torch.float32, torch.device("cpu"))
    for batch in range(6):
        column.slots[batch % 4].fill_(batch / 2)
        column.filled[batch % 4] = batch
    (rings,) = ledger.tensors().values()
    assert unrolled(rings, ledger.filled(), 1) == {"loss": {2: 1.0, 3: 1.5, 4: 2.0, 5: 2.5}}
    assert unrolled(rings, ledger.filled(), 4) == {"loss": {5: 2.5}}


@pytest.mark.parametrize(
    ("value", "index"), [(math.nan, (3, 7)), (math.inf, ()), (-math.inf, ())], ids=["NaN", "inf", "-inf"]
)
def test_a_sum_shows_every_non_finite_value_and_the_place_of_a_nan(value: float, index: tuple[int, ...]) -> None:
    ledger, x = Ledger(4), torch.randn(8, 20)
    sums = Sums(ledger, elements([x, Y]))
    bad = x.clone()
    bad[3, 7] = value
    for i, batch in enumerate([[x, Y], [bad, Y], [x[:3], Y], [x.double(), Y], ["no tensor"]]):
        sums.note(batch, i % 4, i)
    (found,) = sums.bad(unrolled(next(iter(ledger.tensors().values())), ledger.filled(), -1))
    assert (found.batch, found.path, found.index) == (1, "batch[0]", index)
    assert str(found.total) == str(value)


def test_sums_of_half_precision_do_not_overflow() -> None:
    ledger, x = Ledger(4), torch.full((8, 100), 6e4, dtype=torch.float16)
    sums = Sums(ledger, elements(x))
    sums.note(x, 0, 0)
    assert not sums.bad(unrolled(next(iter(ledger.tensors().values())), ledger.filled(), -1))


DATA = TensorDataset(torch.randn(65, 3))


@pytest.mark.parametrize(
    ("loader", "shuffled", "size", "samples", "drops"),
    [
        (DataLoader(DATA, 32), False, 32, 65, False),
        (DataLoader(DATA, 32, shuffle=True, drop_last=True), True, 32, 65, True),
        (DataLoader(DATA, sampler=RandomSampler(DATA, num_samples=10)), True, 1, 10, False),
        (
            DataLoader(DATA, batch_sampler=torch.utils.data.BatchSampler(SequentialSampler(DATA), 8, True)),
            None,
            8,
            65,
            True,
        ),
        (DataLoader(DATA, batch_size=None), False, 0, 65, False),
        ([1, 2, 3], None, 0, -1, False),
    ],
    ids=["plain", "shuffled", "sampled", "batch sampler", "unbatched", "no loader"],
)
def test_what_a_loader_promises(loader: Any, shuffled: bool | None, size: int, samples: int, drops: bool) -> None:
    if getattr(loader, "batch_sampler", None) is not None and shuffled is None:
        assert shuffles(loader) in (None, False)
    else:
        assert shuffles(loader) is shuffled
    assert (batch_size(loader), samples_per_epoch(loader), drops_last(loader)) == (size, samples, drops)


class Noisy(Dataset[Tensor]):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Tensor:
        return torch.as_tensor(self.rng.normal(size=3))


class Split(Noisy):
    """Its generator is used up in the constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.order = random.Random(0)
        self.rows = list(range(8))
        self.order.shuffle(self.rows)

    def __getitem__(self, i: int) -> Tensor:
        return torch.tensor(self.rows[i])


class Transformed(Dataset[Tensor]):
    def __init__(self) -> None:
        self.transform = Jitter()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Tensor:
        return self.transform(torch.zeros(2))


class Jitter:
    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __call__(self, x: Tensor) -> Tensor:
        return x + torch.randn(2, generator=self.generator)


def seeding(_: int) -> None:
    """A function of the user's."""


@pytest.mark.parametrize(
    ("loader", "found"),
    [
        (DataLoader(Noisy(), num_workers=2), ("dataset.rng",)),
        (DataLoader(Subset(Noisy(), [1, 2]), num_workers=2), ("dataset.dataset.rng",)),
        (DataLoader(Transformed(), num_workers=2), ("dataset.transform.generator",)),
        (DataLoader(Noisy(), num_workers=1), ()),
        (DataLoader(Noisy()), ()),
        (DataLoader(Noisy(), num_workers=2, worker_init_fn=seeding), ()),
        (DataLoader(DATA, num_workers=2), ()),
    ],
    ids=["own", "subset", "transform", "one worker", "no worker", "seeded", "none"],
)
def test_generators_that_workers_copy(loader: Any, found: tuple[str, ...]) -> None:
    assert copied_generators(loader) == found


def test_a_generator_that_only_the_constructor_uses_is_no_finding() -> None:
    assert copied_generators(DataLoader(Split(), num_workers=2)) == ()
