"""Probabilities that sum to one over the samples, by hand: each sample's own answer is picked from another axis."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ..evidence.losses import AcrossLoss
from .calls import Marks
from .first_loss import FirstLossObserver
from .moment import Moment
from .observer import is_plain
from .operation import Operation
from .operations import VIEWS
from .site import user_line

SOFTMAXES = ("softmax", "log_softmax")
LOGS = ("log", "log2", "log10")
KEEPS = frozenset(("add", "sub", "clamp", "clip", "clamp_min", "neg", "contiguous", "float", "clone", "div"))
"""What leaves every value in its place, with numbers for its other arguments."""
SUMS = ("sum", "mean")


@dataclass(frozen=True)
class _Shared:
    """A softmax at ``where`` over ``axis``, that of the samples. ``log``: taken. ``weighed``: by targets, each value.

    ``picked``: one value of each sample, or a sum over its own values. ``masked``: these targets are all 0 or 1.
    """

    where: str
    axis: int
    log: bool
    weighed: bool = False
    picked: bool = False
    masked: bool = False


class Across:
    """Follows softmaxes over the axis of so many samples.

    Attributes:
        found: line of one whose logarithms are picked, or summed up, over another axis, or which itself is summed up so
            behind a mask, as in an overlap; empty for none.
    """

    def __init__(self, samples: int) -> None:
        self.found = ""
        self._samples = samples
        self._shared: Marks[_Shared] = Marks()

    def follow(self, op: Operation, rows: Tensor | None = None) -> None:
        """One operation on values made from the batch; ``rows``: layout of the samples in its first argument."""
        if self.found or not op.out.requires_grad or op.first is None:
            return
        if op.name in SOFTMAXES:
            self._begin(op, rows)
            return
        source = next((a for a in op.args if isinstance(a, Tensor) and self._shared.get(a) is not None), None)
        shared = None if source is None else self._shared.get(source)
        if source is not None and shared is not None:
            self._go_on(op, source, shared)

    def _begin(self, op: Operation, rows: Tensor | None) -> None:
        out = op.out
        axis = op.kwargs.get("dim", next((a for a in op.args[1:] if type(a) is int), None))
        axis = (0 if out.ndim in (0, 1, 3) else 1) if axis is None else axis
        if out.ndim < 2 or not isinstance(axis, int):
            return
        axis %= out.ndim
        known = [a for a, n in enumerate(rows.shape) if n > 1] if rows is not None and rows.ndim == out.ndim else []
        if known != [axis] if known else list(out.shape).count(self._samples) != 1:
            return
        if out.shape[axis] == self._samples > 1 and max(out.shape[:axis] + out.shape[axis + 1 :]) > 1:
            self._shared.put(out, _Shared(user_line(), axis, op.name == "log_softmax"))

    def _go_on(self, op: Operation, source: Tensor, shared: _Shared) -> None:
        name, out, after = op.name, op.out, None
        given = [a for a in op.args if isinstance(a, Tensor)]
        if name in LOGS:
            after = replace(shared, log=True)
        elif name in KEEPS and len(given) == 1 and (shared.picked or out.shape == source.shape):
            after = shared
        elif shared.picked:
            after = shared if name in VIEWS else None
        elif name == "mul" and len(given) == 2 and out.shape == source.shape == given[0].shape == given[1].shape:
            other = given[1] if given[0] is source else given[0]
            masked = (
                not shared.log
                and not other.requires_grad
                and is_plain(other)
                and bool(((other == 0) | (other == 1)).all())
            )
            after = None if other.requires_grad else replace(shared, weighed=True, masked=masked)
        elif _takes(op, source, shared):
            after = replace(shared, weighed=True, picked=True)
        if after is None:
            return
        self._shared.put(out, after)
        if after.picked and (after.log or after.masked):
            self.found = after.where


def _takes(op: Operation, source: Tensor, shared: _Shared) -> bool:
    """Does it pick from, or sum up what was weighed, over another axis than the samples' alone?"""
    name, args = op.name, op.args
    if args[0] is not source:
        return False
    if name == "__getitem__" and source.ndim == 2 and shared.axis == 0:
        places = args[1] if len(args) > 1 else None
        return isinstance(places, tuple) and len(places) == 2 and all(_are_numbers(p, len(source)) for p in places)
    if name not in ("gather", "take_along_dim") and not (name in SUMS and shared.weighed):
        return False
    axis = op.kwargs.get("dim", next((a for a in args[1:] if not isinstance(a, Tensor)), None))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if not all(type(a) is int for a in axes) or shared.axis in [a % source.ndim for a in axes]:
        return False
    return any(source.shape[a] > 1 for a in axes)


def _are_numbers(places: Any, count: int) -> bool:
    return isinstance(places, Tensor) and not places.is_floating_point() and places.shape == (count,)


class AcrossWatch(FirstLossObserver):
    """What the first step has shown."""

    codes = ("WD103",)

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        attending = at.trace.attending if at.trace is not None else None
        if attending is not None and attending.across.found:
            at.emit(AcrossLoss(function="softmax", where=attending.across.found, **at.tags()))
