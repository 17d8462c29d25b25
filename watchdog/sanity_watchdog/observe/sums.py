"""The sum of every floating tensor of every batch: one operator each, and a NaN or infinity shows in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .batches import Element, Step, follow
from .ledger import Column, Ledger

MOST = 8
"""Tensors whose sums are taken."""
SMALL = 1024
"""Elements up to which the place of a NaN is kept as well: 2 µs on a CPU, where ``argmax`` goes one by one."""


@dataclass
class _Input:
    path: str
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    total: Column
    place: Column | None


@dataclass(frozen=True)
class Bad:
    """A sum that is not finite.

    Attributes:
        batch: number of the batch. path: the tensor. total: its sum.
        index: place of the first NaN, sample first; empty where it was not kept.
    """

    batch: int
    path: str
    total: float
    index: tuple[int, ...]


class Sums:
    """Columns of a ledger for the first ``MOST`` floating tensors of a batch."""

    def __init__(self, ledger: Ledger, found: Sequence[Element]) -> None:
        floats = [e for e in found if e.dense and e.tensor.is_floating_point()]
        self._inputs = [self._input(ledger, e) for e in floats[:MOST]]

    @staticmethod
    def _input(ledger: Ledger, e: Element) -> _Input:
        shape, device = tuple(e.tensor.shape), e.tensor.device
        small = e.tensor.numel() <= SMALL
        return _Input(
            path=e.path,
            steps=e.steps,
            shape=shape,
            axes=tuple(range(len(shape))),
            dtype=e.tensor.dtype,
            device=device,
            total=ledger.column(f"sum {e.path}", torch.float32, device),
            place=ledger.column(f"place {e.path}", torch.int64, device) if small else None,
        )

    def note(self, batch: Any, row: int, number: int) -> None:
        """Queue the sums of this batch."""
        for one in self._inputs:
            tensor = follow(batch, one.steps)
            if tensor is None or tensor.dtype is not one.dtype or tensor.device != one.device or not tensor.numel():
                continue
            if tensor.ndim != len(one.axes) or tensor.layout is not torch.strided:
                continue
            tensor = tensor.detach() if tensor.requires_grad else tensor
            torch.sum(tensor, one.axes, dtype=torch.float32, out=one.total.slots[row])
            one.total.filled[row] = number
            if one.place is not None:
                torch.argmax(tensor, out=one.place.slots[row])  # a NaN counts as the largest
                one.place.filled[row] = number

    def bad(self, read: Mapping[str, Mapping[int, float]]) -> list[Bad]:
        """Sums that are not finite among what was read, by batch."""
        found = []
        for one in self._inputs:
            places = read.get(f"place {one.path}", {})
            for batch, total in read.get(f"sum {one.path}", {}).items():
                if not math.isfinite(total):
                    place = places.get(batch) if math.isnan(total) else None
                    found.append(Bad(batch, one.path, total, _index(place, one.shape)))
        return sorted(found, key=lambda b: b.batch)


def _index(place: float | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    if place is None:
        return ()
    index: tuple[int, ...] = ()
    rest = int(place)
    for size in reversed(shape[1:]):
        rest, last = divmod(rest, size)
        index = (last, *index)
    return (rest, *index)
