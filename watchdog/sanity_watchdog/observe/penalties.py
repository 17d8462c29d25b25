"""Gradient penalties: what the slope of a critic is taken of, and over which axes its length is."""

import math
import weakref
from typing import Any

from torch import Tensor

from ..evidence.targets import Penalty
from .calls import Marks, tensors_of
from .distances import squares
from .moment import Moment
from .observer import Observer, in_samples, is_plain
from .operation import Operation
from .operations import NORMS, SUBTRACTS, VIEWS
from .site import user_line

KEEPS = VIEWS | {"detach", "requires_grad"}
Weight = weakref.ref[Tensor]
MOST = 4
"""Mixtures of a step whose weights are looked at."""


class Penalties:
    """Follows one step. Only gradients that are to have gradients themselves, of one number for each sample.

    Attributes:
        seen: was there one? pieces, mixed: see ``Penalty``.
    """

    def __init__(self) -> None:
        self.seen = False
        self.pieces = self.mixed = ""
        self._slopes: Marks[int] = Marks()
        self._squares: Marks[int] = Marks()
        self._lengths: Marks[str] = Marks()
        self._complements: Marks[Weight] = Marks()
        self._gaps: Marks[bool] = Marks()
        self._parts: Marks[Weight] = Marks()
        self._mixtures: Marks[tuple[Tensor, str]] = Marks()
        self._looked = 0

    def asked(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """``torch.autograd.grad`` has run. Waits for the device where what it was asked of is a mixture."""
        given = dict(zip(("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"), args, strict=False))
        given |= kwargs
        values, places = list(tensors_of(given.get("outputs"))), list(tensors_of(given.get("inputs")))
        if not given.get("create_graph") or len(values) != 1 or not isinstance(out, (tuple, list)):
            return
        for place, slope in zip(places, out, strict=False):
            if isinstance(slope, Tensor) and place.ndim > 2 and _summands(values[0]) == len(place) > 1:
                self.seen = True
                self._slopes.put(slope, len(place))
                differ, where = self._mixtures.get(place) or (None, "")
                if differ is not None and not self.mixed and bool(differ):
                    self.mixed = where

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        if op.inputs and self.seen:
            self._measure(op)
        if op.inputs and op.out.ndim > 2:
            self._mix(op)

    def _measure(self, op: Operation) -> None:
        name, first, out, number = op.name, op.inputs[0], op.out, _number(op)
        samples, squared, length = self._slopes.get(first), self._squares.get(first), self._lengths.get(first)
        shifted = name == "add" and number is not None
        if samples and squares(op):
            self._squares.put(out, samples)
        elif samples and shifted:
            self._slopes.put(out, samples)
        elif (samples and name in NORMS) or (squared and name == "sum"):
            if out.numel() > (samples or squared or 0) and out.ndim > 1:
                self._lengths.put(out, user_line())
        elif length and (name in ("sqrt", "squeeze") or shifted):
            self._lengths.put(out, length)
        elif length and name in SUBTRACTS and number == 1 and not self.pieces:
            self.pieces = length

    def _mix(self, op: Operation) -> None:
        name, inputs, out = op.name, op.inputs, op.out
        if name in SUBTRACTS and len(inputs) == 2:
            self._gaps.put(out, True)
        elif name in SUBTRACTS and _number(op) == 1 and _is_weight(inputs[0], out):
            self._complements.put(out, weakref.ref(inputs[0]))
        elif name == "mul" and len(inputs) == 2:
            weight, other = inputs if _is_weight(inputs[0], out) else inputs[::-1]
            rest = next((c for t in inputs if (c := self._complements.get(t)) is not None), None)
            if rest is None and self._gaps.get(other) and _is_weight(weight, out):
                rest = weakref.ref(weight)
            if rest is not None:
                self._parts.put(out, rest)
        elif name == "add" and len(inputs) == 2:
            part = next((p for t in inputs if (p := self._parts.get(t)) is not None), None)
            weights = part() if part is not None else None
            if weights is not None and self._looked < MOST:
                self._looked += 1
                self._mixtures.put(out, (_differ_within(weights), user_line()))
        elif name in KEEPS and (mixture := self._mixtures.get(inputs[0])) is not None:
            self._mixtures.put(out, mixture)


def _summands(value: Tensor) -> int:
    """How many numbers it holds, or was summed up of right before."""
    node: Any = value.grad_fn
    if value.numel() != 1 or node is None or node.name() != "SumBackward0":
        return value.numel()
    return math.prod(node._saved_self_sym_sizes)


def _number(op: Operation) -> float | None:
    """The one that a tensor is added to, or subtracted from, either way round."""
    return next((float(a) for a in op.args[:2] if isinstance(a, (int, float))), None)


def _is_weight(tensor: Tensor, out: Tensor) -> bool:
    """A number of its own for each value of a sample, with no gradient."""
    return not tensor.requires_grad and tensor.shape == out.shape and tensor.is_floating_point() and is_plain(tensor)


def _differ_within(weights: Tensor) -> Tensor:
    """Do they differ within a sample, and are they no mask? Stays on the device."""
    each = weights.detach().flatten(1)
    return (each != each[:, :1]).any() & ~((each == 0) | (each == 1)).all()


class PenaltyWatch(Observer):
    """The first step."""

    codes = ("WD118",)

    def __init__(self) -> None:
        self._penalties: Penalties | None = None

    def output(self, at: Moment, output: Any) -> None:
        self._note(at)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        self._note(at)

    def _note(self, at: Moment) -> None:
        if at.trace is not None and at.trace.followers is not None and at.stage == "train":
            self._penalties = at.trace.followers.penalties

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        penalties, self._penalties = self._penalties, None
        if penalties is not None and penalties.seen:
            at.emit(Penalty(pieces=penalties.pieces, mixed=penalties.mixed, **at.tags()))
