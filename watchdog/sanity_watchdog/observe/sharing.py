"""Parameters that several optimizers step in the same batch, and those that share their memory."""

from collections.abc import Iterator, Mapping
from itertools import permutations

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.membership import Shared
from .holding import held_by, ids_held_by
from .observer import is_plain

MOST = 8
"""Optimizers that are compared with each other."""


class Sharing:
    """Which parameters each optimizer stepped with a gradient, and in which batches."""

    def __init__(self) -> None:
        self._used: dict[int, set[int]] = {}
        self._batches: dict[int, set[int]] = {}

    def note(self, optimizer: Optimizer, batch: int) -> None:
        """It is about to step."""
        used = self._used.setdefault(id(optimizer), set())
        used.update(id(p) for p in held_by(optimizer) if p.grad is not None)
        self._batches.setdefault(id(optimizer), set()).add(batch)

    def between(self, optimizers: tuple[Optimizer, ...], named: Mapping[str, Tensor]) -> Iterator[Shared]:
        """Pairs of optimizers that stepped the same parameters of ``named`` in one batch, unless they hold the same."""
        held = [ids_held_by(o) for o in optimizers[:MOST]]
        everything = {id(p) for p in named.values() if p.requires_grad}
        for i, j in permutations(range(len(held)), 2):
            a, b = id(optimizers[i]), id(optimizers[j])
            if (len(held[i]), j) <= (len(held[j]), i) or held[i] == held[j]:
                continue
            both = self._used.get(a, set()) & self._used.get(b, set())
            names = tuple(n for n, p in named.items() if id(p) in both)
            if names and self._batches[a] & self._batches[b]:
                yield Shared(i, j, names, held[i] >= everything and held[j] < held[i])


def aliases(named: dict[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Pairs of different parameters whose elements are the same memory."""
    first: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[str, Tensor]] = {}
    found = []
    for name, p in named.items():
        if p.requires_grad and p.numel() and is_plain(p) and p.layout is torch.strided and p.data_ptr():  # 0 on a TPU
            before, other = first.setdefault((p.data_ptr(), tuple(p.shape), p.stride()), (name, p))
            if other is not p:
                found.append((before, name))
    return tuple(found)
