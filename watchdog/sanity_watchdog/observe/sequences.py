"""Which row of the scores to ask, and which input is their target, shifted by one position or not at all."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from .calls import Frontier, LossCall

CLASSES = ("cross_entropy", "nll_loss")
ALIKE = 0.9
"""Share of the valid targets that must equal the next inputs."""
SHORTEST = 4
"""Positions, and valid targets, below which equality may be chance."""
COMPARED = 1 << 20
"""Values of the input that are compared."""
MARGIN = 64
"""Positions of padding before the first one that are tried."""

Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Entry:
    """Where the input enters that the targets are.

    Attributes:
        shift: 1 where they are the values of the next positions, 0 of the same.
        place: the operation. sample_axis, position_axis: axes of its data.
        offset: positions of padding before the first one.
        column: the only feature that the targets are, -1 where they are all of them.
    """

    place: Frontier
    sample_axis: int
    position_axis: int
    offset: int
    column: int
    shift: int


@dataclass(frozen=True)
class Row:
    """One row of the scores.

    Attributes:
        index: its place in the scores. sample: number of the sample, -1 where the scores do not show whose they are.
        position: position in its sequence, -1 without one. length: positions.
        entry: where the values enter that the targets are; None for anything but such a prediction.
        another: place of a row of another sample, and at another position.
    """

    index: Index
    sample: int
    position: int = -1
    length: int = 0
    entry: Entry | None = None
    another: Index = ()

    def pick(self, scores: Tensor) -> Tensor:
        """The scores of this row, still in the graph."""
        return scores[self.index]


@dataclass(frozen=True)
class Reading:
    """Targets as ``(samples, positions, …)``, which of them count, and where the scores of one of them lie."""

    targets: Tensor
    valid: Tensor
    index: Callable[[int, int], Index]


def row_of(call: LossCall, reached: Iterable[Frontier], samples: int) -> Row:
    """The row to ask: in the middle of the batch, and of the valid positions of a sequence. Reads the device."""
    readings, reached = list(_readings(call, samples)), list(reached)
    for shift, place, reading in product((1, 0), reached, readings):
        entry = _entry(place, reading, shift)
        if entry is not None:
            sample, position = _middle(reading.valid)
            return _row(reading, sample, position, entry)
    if call.name in CLASSES and readings:
        return _row(readings[0], samples // 2, readings[0].targets.shape[1] // 2)
    axis = sample_axis(call, samples)
    place = min(samples // 2, call.input.shape[axis or 0] - 1)
    before = (slice(None),) * (axis or 0)
    return Row((*before, place), -1 if axis is None else place, another=(*before, place // 2))


def sample_axis(call: LossCall, samples: int) -> int | None:
    """Axis of the scores along which the samples lie, where the targets or the sizes show it.

    It need not be the first one: members of an ensemble, or draws of a latent variable, are often stacked before it.
    """
    scores, target, rows = call.input, call.target, call.rows
    spare = scores.ndim - target.ndim if call.name in CLASSES else 0
    if rows is not None and rows.ndim == target.ndim and (spare == 1 or scores.shape == target.shape):
        axes = [a for a, n in enumerate(rows.shape) if n > 1]
        if len(axes) == 1:
            return axes[0] + (spare if axes[0] else 0)
    others = scores.shape[1 + spare :] if spare >= 0 else ()
    return 0 if len(scores) >= samples and samples not in others else None


def _row(reading: Reading, sample: int, position: int, entry: Entry | None = None) -> Row:
    length = reading.targets.shape[1]
    another = reading.index(sample // 2, length // 3)
    return Row(reading.index(sample, position), sample, position, length, entry, another)


def _readings(call: LossCall, samples: int) -> Iterator[Reading]:
    """Ways to see a sequence for each sample in the targets; those with the samples first come first."""
    scores, target = call.input, call.target
    n, length = samples, target.numel() // samples if samples else 0
    classes = call.name in CLASSES
    if classes and target.is_floating_point():
        return
    ignored = call.arguments.get("ignore_index", -100) if classes else None
    counts = torch.ones_like(target, dtype=torch.bool) if ignored is None else target != ignored

    def reading(arrange: Callable[[Tensor], Tensor], index: Callable[[int, int], Index]) -> Iterator[Reading]:
        targets = arrange(target)
        if targets.shape[1] >= SHORTEST:
            yield Reading(targets, arrange(counts).flatten(2).all(2) if targets.ndim > 2 else arrange(counts), index)

    if not classes and scores.shape != target.shape:
        return
    flat = scores.ndim == (2 if classes else 1)
    if flat and length and len(scores) == len(target) == n * length:
        yield from reading(lambda t: t.reshape(n, length), lambda s, p: (s * length + p,))
        yield from reading(lambda t: t.reshape(length, n).T, lambda s, p: (p * n + s,))
    elif classes and scores.ndim == 3:
        if scores.shape[::2] == (n, length):
            yield from reading(lambda t: t.reshape(n, length), lambda s, p: (s, slice(None), p))
        if scores.shape[::2] == (length, n):
            yield from reading(lambda t: t.reshape(length, n).T, lambda s, p: (p, slice(None), s))
    elif not classes and target.ndim in (2, 3):
        if target.shape[0] == n:
            yield from reading(lambda t: t, lambda s, p: (s, p))
        if target.shape[0] == n and target.ndim == 3:
            yield from reading(lambda t: t.transpose(1, 2), lambda s, p: (s, slice(None), p))
        if target.shape[1] == n:
            yield from reading(lambda t: t.transpose(0, 1), lambda s, p: (p, s))
        if target.ndim == 2 and target.shape[0] > n and target.shape[0] % n == 0:
            rows = target.shape[0] // n
            yield from reading(lambda t: t.reshape(n, rows, -1), lambda s, p: (s * rows + p,))


def _entry(place: Frontier, reading: Reading, shift: int) -> Entry | None:
    """How the values that enter there are the targets of so many positions before, if they are."""
    data = place.data
    axes = {2: ((0, 1), (1, 0)), 3: ((0, 1), (0, 2), (1, 0))}.get(data.ndim, ())
    if data.device != reading.targets.device:
        return None
    for samples, positions in axes:
        values = data.movedim((samples, positions), (0, 1))
        if values.ndim == 3 and values.is_floating_point() and not reading.targets.is_floating_point():
            values = values.argmax(2)
        spare = values.shape[1] - reading.targets.shape[1]
        for offset in range(min(max(spare, 0), MARGIN) + 1):
            column = _column(values[:, offset:], reading, shift)
            if column is not None:
                return Entry(place, samples, positions, offset, column, shift)
    return None


def _column(inputs: Tensor, reading: Reading, shift: int) -> int | None:
    """The feature of the input that the targets are, -1 for all, None for none."""
    if len(inputs) != len(reading.targets) or not inputs.numel():
        return None
    rows = max(1, COMPARED // inputs[0].numel())
    count = min(inputs.shape[1] - 1, reading.targets.shape[1])
    now, after = (_bare(t[:rows]) for t in (inputs[:, :count], inputs[:, 1 : count + 1]))
    targets, mask = _bare(reading.targets[:rows, :count]), reading.valid[:rows, :count]
    one_of_many = after.ndim == 3 and targets.ndim == 2
    if after.ndim != targets.ndim and not one_of_many:
        return None
    if one_of_many:
        targets = targets[:, :, None]
    if after.shape[2:] != targets.shape[2:] and not one_of_many:
        return None
    hits = [(t == targets) & (mask[:, :, None] if t.ndim == 3 else mask) for t in (now, after)]
    if after.ndim == 3 and not one_of_many:
        hits = [h.all(2) for h in hits]
    here, ahead = (h.sum((0, 1)).reshape(-1) for h in hits)
    found, other = (ahead, here) if shift else (here, ahead)
    total = mask.sum()
    fits = (total >= SHORTEST) & (found >= ALIKE * total) & (found > other)
    if not bool(fits.any()):
        return None
    return int(fits.float().argmax()) if one_of_many else -1


def _bare(values: Tensor) -> Tensor:
    """Without an axis of one feature."""
    return values[:, :, 0] if values.ndim == 3 and values.shape[2] == 1 else values


def _middle(valid: Tensor) -> tuple[int, int]:
    """The last of the samples with the most valid targets, and its middle valid position, the last one left out.

    Under a causal mask over the wrong axis the first sample depends on itself alone, the last one on all.
    """
    counts = valid[:, :-1].sum(1)
    sample = int((counts == counts.max()).nonzero()[-1])
    places = valid[sample, :-1].nonzero().flatten()
    return sample, int(places[len(places) // 2])
