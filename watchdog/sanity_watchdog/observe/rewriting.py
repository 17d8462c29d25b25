"""Compares what a data set keeps in memory at the ends of epochs: does loading write to it?"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import getclosurevars, isfunction
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ..evidence.data import StoredData
from ..evidence.readings import Unseen
from .moment import Moment
from .observer import Observer, is_plain
from .run import Run

ROWS, COLUMNS = 64, 64
"""Samples of an array that are compared, and values of each, evenly picked."""
FEWEST = 8
"""Samples that must have changed, and samples that an array must have."""
DEPTH, ARRAYS = 3, 8
"""How deep arrays are looked for in a data set, and how many are followed."""
EXACT = 1e-3
"""Deviation of the new values from a line through the old ones, in standard deviations of the new ones."""
AHEAD = 2
"""Batches that may have been loaded when the first backward pass of an epoch begins."""
EARLY = 0.25
"""Share of an epoch's batches by which loading must have changed some of the samples that are compared."""
VALUES = 4
"""Different values of a sample from which its own factor and shift show, or that one value has replaced."""
HIDDEN = 0.9
"""Share of a sample's values that are the one which replaces others: what is more is used up, not masked."""
Line = tuple[float, float]
"""Factor and shift; NaN for a shift that is another for each sample. Factor 0: the shift has replaced single values."""


class RewritingWatch(Observer):
    """Takes a few values of each array before the first epoch and after the first two."""

    codes = ("WD127",)

    def __init__(self) -> None:
        self._before: dict[str, Tensor] = {}
        self._lines: dict[str, Line] = {}
        self._opening: dict[str, Tensor] = {}
        self._midway: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None
        self._epochs = self._begun = 0

    def start(self, run: Run, at: Moment) -> None:
        self._before = dict(_stored(run))
        if not self._before:
            at.emit(Unseen(codes=self.codes, reason="no data set that keeps its samples in memory", **at.tags()))
        else:
            at.emit(Unseen(codes=self.codes, reason="fewer than two epochs", **at.tags()))

    def epoch_start(self, at: Moment) -> None:
        """What has changed throughout since the last epoch, with one batch loaded, was not changed by loading."""
        self._begun = at.batch
        if self._before and self._epochs == 1 and at.run.batches_per_epoch > AHEAD:
            self._opening = dict(_stored(at.run))

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        """What has not changed at all well after the epoch's beginning, and before its end, was not changed by loading.

        It may be written to at the end, as by a callback.
        """
        done, size = at.batch - self._begun, at.run.batches_per_epoch
        if self._midway is None and self._before and self._epochs < 2 and EARLY * size <= done < size - 1:
            self._midway = self._before, dict(_stored(at.run))

    def epoch_end(self, at: Moment) -> None:
        self._epochs += 1
        if not self._before or self._epochs > 2:
            return
        now = dict(_stored(at.run))
        lines = {path: line for path, line in _changes(self._before, now).items() if line is not None}
        if self._epochs == 2:
            same = [p for p, line in lines.items() if p in self._lines and _alike(line, self._lines[p])]
            same = [p for p in same if not _is_new(self._before.get(p), self._opening.get(p)) and self._loads(p)]
            self._opening, self._midway = {}, None
            factor, shift = lines[same[0]] if same else (1.0, 0.0)
            at.emit(StoredData(paths=tuple(same), factor=factor, shift=shift, arrays=len(now), **at.tags()))
        self._before, self._lines = now, lines

    def _loads(self, path: str) -> bool:
        """Had it changed well before the end of an epoch, where that was looked at?"""
        begun, midway = self._midway or ({}, {})
        return path not in midway or path not in begun or not torch.equal(begun[path], midway[path])


def _stored(run: Run) -> Iterator[tuple[str, Tensor]]:
    found = 0
    for i, loader in enumerate(run.loaders):
        if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
            name = "dataset" if len(run.loaders) == 1 else f"dataset {i}"
            for path, values in _arrays(loader.dataset, name, DEPTH, set()):
                yield path, values
                found += 1
                if found == ARRAYS:
                    return


def _arrays(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if id(value) in seen or isinstance(value, (type, torch.nn.Module, str, bytes)):
        return
    seen.add(id(value))
    yield from _within(value, path, depth, seen)


def _within(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    rows = _rows(value)
    if rows is not None:
        yield path, rows
    elif depth and (members := _members(value)):
        for key, each in members.items():
            yield from _within(each, f"{path}[…][{key!r}]", depth - 1, seen)
    elif isinstance(value, (list, tuple)) and depth:
        for i, item in enumerate(value[:ARRAYS]):
            yield from _arrays(item, f"{path}[{i}]", depth - 1, seen)
    elif depth and isinstance(getattr(value, "__dict__", None), dict):
        for name, item in list(vars(value).items()):
            yield from _arrays(item, f"{path}.{name}", depth - 1, seen)
        for name, item in _named_in(getattr(type(value), "__getitem__", None)):
            yield from _arrays(item, name, 0, seen)


def _members(value: Any) -> dict[Any, list[Any]]:
    """Of a list of records, such as ``(image, {"boxes": …})``: what some of them hold in the same place."""
    if type(value) is not list or len(value) < FEWEST:
        return {}
    some = value[:: max(1, len(value) // ROWS)][:ROWS]
    keys = _places(some[0])
    fit = all(type(record) is type(some[0]) and _places(record) == keys for record in some)
    return {key: [record[key] for record in some] for key in keys[:ARRAYS]} if fit else {}


def _places(record: Any) -> list[Any]:
    return list(record) if type(record) is dict else list(range(len(record))) if type(record) is tuple else []


def _named_in(function: Any) -> Iterator[tuple[str, Any]]:
    """Variables around a function that its code names."""
    if isfunction(function):
        with suppress(ValueError):  # one that has no value yet
            found = getclosurevars(function)
            yield from {**found.globals, **found.nonlocals}.items()


def _rows(value: Any) -> Tensor | None:
    """Some values (rows, columns) of a table of samples, or of a list of samples of one size; None for all else."""
    if not (type(value) is list or _is_table(value)) or len(value) < FEWEST:
        return None
    step = max(1, len(value) // ROWS)
    if isinstance(value, Tensor) and value.is_contiguous():
        table = value.detach().view(len(value), -1)
        columns = table.shape[1]
        return _copy(table[::step, :: max(1, columns // COLUMNS)][:ROWS, :COLUMNS]) if columns > 1 else None
    rows: list[Tensor] = []
    for i in range(0, len(value), step)[:ROWS]:
        row = _flat(value[i])
        if row is None or len(row) < 2 or (rows and len(row) != len(rows[0])):
            return None
        rows.append(row)
    return torch.stack(rows)


def _is_table(value: Any) -> bool:
    return _is_readable(value) and value.ndim > 1


def _is_readable(value: Any) -> bool:
    if isinstance(value, Tensor):
        real = value.dtype is not torch.bool and not value.is_complex()
        return is_plain(value) and value.is_cpu and value.layout is torch.strided and real
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in "fiu"


def _flat(sample: Any) -> Tensor | None:
    """A copy of some values of one sample."""
    if not _is_readable(sample) or not sample.ndim:
        return None
    flat = sample.detach().reshape(-1) if isinstance(sample, Tensor) else torch.from_numpy(sample.reshape(-1).copy())
    return _copy(flat[:: max(1, len(flat) // COLUMNS)][:COLUMNS])


def _copy(values: Tensor) -> Tensor:
    """Not of the same memory; in one format for all that are whole by it, and one for the others."""
    return values.to(torch.double if values.is_floating_point() else torch.long, copy=True)


def _changes(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> dict[str, Line | None]:
    return {path: _change(before[path], rows) for path, rows in now.items() if path in before}


def _change(old: Tensor, new: Tensor) -> Line | None:
    """What happened to every sample that changed, if it was the same for all."""
    if old.shape != new.shape:
        return None
    changed = (old != new).any(1) & old.isfinite().all(1) & new.isfinite().all(1)
    old, new = old[changed], new[changed]
    if len(old) < FEWEST:
        return None
    if (filled := _filled(old, new)) is not None:
        return filled
    return _line(old, new) or _by_sample(old, new) if old.is_floating_point() else None


def _filled(old: Tensor, new: Tensor) -> Line | None:
    """The one value that has replaced different ones, here and there in the samples, if nothing else has changed."""
    places = old != new
    value = new[places][0]
    partly = ((new == value).double().mean(1) < HIDDEN).double().mean() > HIDDEN
    same = bool((new[places] == value).all()) and bool(partly)
    return (0.0, float(value)) if same and len(torch.unique(old[places])) >= VALUES else None


def _fitted(old: Tensor, new: Tensor) -> tuple[Tensor, Tensor] | None:
    """Factor and shift of each column that varies, where they explain all its values."""
    varies = (old.std(0) > 0) & (new.std(0) > 0)
    if not varies.any():
        return None
    old, new = old[:, varies], new[:, varies]
    x, y = old - old.mean(0), new - new.mean(0)
    factors = (x * y).sum(0) / x.square().sum(0)
    if bool(((y - factors * x).abs().amax(0) > EXACT * new.std(0)).any()):
        return None
    return factors, new.mean(0) - factors * old.mean(0)


def _line(old: Tensor, new: Tensor) -> Line | None:
    """Median factor and shift, where there is one of each per column."""
    found = _fitted(old, new)
    return None if found is None else (float(found[0].median()), float(found[1].median()))


def _by_sample(old: Tensor, new: Tensor) -> Line | None:
    """The factor, where it is one for all samples and not 1, and each has a shift of its own, such as its mean."""
    found = _fitted(old.T, new.T) if old.shape[1] >= VALUES else None
    if found is None or len(found[0]) < FEWEST:
        return None
    factor = float(found[0].median())
    same = bool(((found[0] - factor).abs() <= EXACT * abs(factor)).all())
    return (factor, math.nan) if same and abs(factor - 1) > EXACT else None


def _is_new(old: Tensor | None, new: Tensor | None) -> bool:
    return old is not None and new is not None and old.shape == new.shape and bool((old != new).any(1).all())


def _alike(one: Line, other: Line) -> bool:
    """NaN is like any shift: what is shifted by its mean has a mean of 0 from then on."""
    return not any(abs(a - b) > EXACT * max(abs(a), abs(b)) + 1e-6 for a, b in zip(one, other, strict=True))
