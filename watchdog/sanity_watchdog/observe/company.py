"""Which samples a row of the scores depends on, wherever reshapes have put them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .calls import Frontier, LossCall
from .entering import BATCH_FIRST
from .operations import CONVOLUTIONS, RECURRENT
from .sequences import CLASSES, Index

COUNTS = 1e-4
"""Relative influence that counts."""


@dataclass(frozen=True)
class Company:
    """The samples that one row depends on.

    Attributes:
        own: the sample that its target is of. others: other samples, in order. itself: does it depend on its own?
        influence: the largest of another sample, relative to its own; 0 where it does not depend on its own.
        strongest: the sample that it depends on most.
    """

    own: int
    others: tuple[int, ...]
    itself: bool
    influence: float
    strongest: int

    @property
    def is_run(self) -> bool:
        """Are they its neighbours, without a gap, as where one sample is predicted from those before it?"""
        everyone = sorted({self.own, *self.others})
        return everyone[-1] - everyone[0] == len(everyone) - 1

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(other - self.own for other in self.others)


def company(
    call: LossCall, index: Index, places: Sequence[Frontier], gradients: Sequence[Tensor | None], samples: int
) -> Company | None:
    """Of the row at ``index``, given the gradients of its scores at ``places``; None where it cannot be told."""
    own = _owner(call, index)
    if own is None or own >= samples:
        return None
    felt = torch.zeros(samples)
    for place, gradient in zip(places, gradients, strict=True):
        if gradient is None:
            continue
        each = _by_sample(place, gradient.detach().abs().float(), samples)
        if each is None:
            return None
        felt = torch.maximum(felt, each)
    if not float(felt.amax()) > 0:
        return None
    counts = (felt > COUNTS * felt.amax()).tolist()
    others = tuple(i for i, c in enumerate(counts) if c and i != own)
    influence = max((float(felt[i]) for i in others), default=0.0) / float(felt[own]) if counts[own] else 0.0
    return Company(own, others, counts[own], influence, int(felt.argmax()))


def astray(rows: Sequence[Company], moved: bool = False) -> Company | None:
    """A row that depends on others and not on its own sample, where no shift of the batch can explain it.

    One row proves nothing, unless a reshape has ``moved`` the samples: each may be predicted from the one before.
    """
    lost = [c for c in rows if c.others and not c.itself]
    if moved and lost:
        return lost[0]
    if len(lost) < max(len(rows), 2) or all(c.is_run for c in lost):
        return None
    return lost[0] if len({c.offsets for c in lost}) > 1 else None


def overshadowed(rows: Sequence[Company]) -> Company | None:
    """A row that depends more than twice as much on another sample as on its own, where statistics over the batch make
    it depend on all, and two such rows have theirs at different distances."""
    lost = [c for c in rows if c.strongest != c.own and (c.influence > 2 or not c.itself)]
    return lost[0] if len(lost) > 1 and len({c.strongest - c.own for c in lost}) > 1 else None


def _owner(call: LossCall, index: Index) -> int | None:
    target, rows = call.target, call.rows
    if rows is None or rows.ndim != target.ndim:
        return None
    if call.name in CLASSES and call.input.ndim > target.ndim:
        index = index[:1] + index[2:]
    elif call.input.shape != target.shape:
        return None
    found = rows.expand(target.shape)[index]
    return int(found.amax()) if found.numel() and bool(found.amax() == found.amin()) else None


def _by_sample(place: Frontier, mass: Tensor, samples: int) -> Tensor | None:
    """Largest influence of each sample's data, ``(samples,)`` on the host."""
    rows, shape, name = place.rows, place.data.shape, place.operation.name
    if rows is None or rows.ndim != len(shape):
        return None
    if name == "embedding" and mass.shape[:-1] == shape:
        mass = mass.amax(-1)
    elif name == "linear" and mass.shape[:-1] == shape[:-1]:
        mass = mass.amax(-1, keepdim=True).expand(shape)
    elif name in CONVOLUTIONS and len(mass) == shape[0]:
        mass = mass.flatten(1).amax(1).reshape(-1, *[1] * (len(shape) - 1)).expand(shape)
    elif name in RECURRENT and len(shape) == 3 and len(place.operation.args) > BATCH_FIRST:
        given = 0 if place.operation.args[BATCH_FIRST] else 1
        axis = 1 if place.operation.index else given
        if mass.shape[axis] != shape[given]:
            return None
        each = mass.movedim(axis, 0).flatten(1).amax(1)
        mass = (each[:, None, None] if given == 0 else each[None, :, None]).expand(shape)
    elif mass.shape != shape:
        return None
    still = [a for a in range(len(shape)) if rows.shape[a] == 1]
    mass = (mass.amax(still, keepdim=True) if still else mass).cpu().expand(rows.shape)
    if int(rows.amax()) >= samples:
        return None
    return mass.new_zeros(samples).scatter_reduce(0, rows.flatten().long(), mass.flatten(), "amax")
