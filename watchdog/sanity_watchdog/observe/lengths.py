"""Along which axis vectors were brought to length one, and products that sum over another one."""

from typing import Any

from torch import Tensor

from ..evidence.losses import AcrossVectors
from .calls import Marks
from .moment import Moment
from .observer import Observer, in_samples
from .operation import Operation
from .operations import FACTORS, NORMS, VIEWS
from .site import user_line

SAME = ("float", "half", "bfloat16", "double", "to", "contiguous", "clone", "detach", "chunk", "split", "cat", "roll")
KEEPS = VIEWS | {"masked_fill", "fill_diagonal", "where", "cat", "add", "sub"}
PRODUCTS = ("matmul", "__rmatmul__", "mm", "bmm", "linear")


class Lengths:
    """Follows vectors through one step."""

    def __init__(self) -> None:
        self._axes: Marks[int] = Marks()
        self._norms: Marks[int] = Marks()
        self._across: Marks[str] = Marks()

    def across(self, scores: Any) -> str:
        """The line of the product of two sets of vectors, neither of which has length one along what it sums up."""
        return self._across.get(scores) or ""

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name == "mul" and len(inputs) == 2 and inputs[0].numel() == 1:  # a temperature times vectors
            inputs = inputs[::-1]
        first = inputs[0] if inputs else None
        if first is None:
            return
        if name == "normalize" and first.ndim > 1:
            self._put(self._axes, out, op.argument("dim", 2, 1))
        elif name in NORMS and out.ndim == first.ndim > 1:
            self._put(self._norms, out, op.argument("dim", 2))
        elif name == "div" and len(inputs) == 2 and (axis := self._norms.get(inputs[1])) is not None:
            if inputs[1].ndim == out.ndim:
                self._axes.put(out, axis)
        elif name in PRODUCTS:
            self._product(op)
        elif (where := self._across.get(first)) is not None:
            if name in KEEPS or (name in FACTORS and all(t.numel() == 1 for t in inputs[1:])):
                self._across.put(out, where)
        elif (axis := self._norms.get(first)) is not None and name in VIEWS | {"add", "maximum"}:
            if out.ndim == first.ndim:
                self._norms.put(out, axis)
        elif (axis := self._axes.get(first)) is not None:
            self._move(op, axis, first)

    @staticmethod
    def _put(marks: Marks[int], out: Tensor, axis: Any) -> None:
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
        if isinstance(axis, int) and not isinstance(axis, bool):
            marks.put(out, axis % out.ndim)

    def _move(self, op: Operation, axis: int, given: Tensor) -> None:
        name, args, out = op.name, op.args, op.out
        ends = {"t": (0, 1), "T": (0, 1), "mT": (-2, -1)}.get(name)
        if name in ("transpose", "swapaxes") and len(args) > 2:
            ends = args[1], args[2]
        if ends is not None and (given.ndim == 2 or name != "T"):
            one, other = (end % given.ndim for end in ends)
            self._axes.put(out, {one: other, other: one}.get(axis, axis))
        elif out.ndim == given.ndim and (name in SAME or _is_scaled(op, given)):
            self._axes.put(out, axis)

    def _product(self, op: Operation) -> None:
        name, inputs, out = op.name, op.inputs, op.out
        if len(inputs) < 2 or not out.requires_grad or any(t.ndim < 2 for t in inputs[:2]):
            return
        one, other = inputs[:2] if name != "__rmatmul__" else inputs[1::-1]
        summed = one.ndim - 1, other.ndim - (1 if name == "linear" else 2)
        axes = self._axes.get(one), self._axes.get(other)
        if None not in axes and axes[0] != summed[0] and axes[1] != summed[1]:
            self._across.put(out, user_line())


def _is_scaled(op: Operation, vectors: Tensor) -> bool:
    """Are all of them multiplied or divided by one number?"""
    return op.name in FACTORS and all(t is vectors or t.numel() == 1 for t in op.inputs)


class LengthsWatch(Observer):
    """Asks where the scores of each cross entropy of a followed step come from."""

    codes = ("WD103",)

    @in_samples
    def output(self, at: Moment, output: object) -> None:
        if at.trace is None or at.trace.followers is None:
            return
        for call in at.trace.calls:
            where = at.trace.followers.lengths.across(call.input)
            if where and call.name == "cross_entropy" and getattr(call.value, "requires_grad", False):
                at.emit(AcrossVectors(function=call.name, where=where, **at.tags()))
