"""Mixtures of data and noise, by a level of each sample's own, that a network is given and asked for again."""

from itertools import count

from torch import Tensor

from .calls import LossCall, Marks
from .distances import squares
from .loss_kinds import DISTANCES
from .noise import Noise
from .operation import Operation
from .operations import KEEPS_VALUES, NORMS, RESHAPES, SUBTRACTS
from .site import user_line

KEEPS = RESHAPES | KEEPS_VALUES
BESIDE = SUBTRACTS | {*DISTANCES, "add"}
"""What a mixture meets without having entered the network."""


class Mixtures:
    """Follows them through one step."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._names = count()
        self._parts: Marks[bool] = Marks()
        self._held: Marks[frozenset[int]] = Marks()
        self._gaps: Marks[frozenset[int]] = Marks()
        self._shown: set[int] = set()
        self._asked: list[tuple[frozenset[int], str]] = []

    def copied(self) -> str:
        """The line at which a prediction meets the mixture that it was made of; empty where one meets its noise."""
        lines = (where for mixture, where in self._asked if mixture <= self._shown)
        return "" if self._noise.is_asked_for else next(lines, "")

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if not out.requires_grad:
            self._mix(op)
        elif name not in BESIDE:
            gap = self._gaps.get(inputs[0]) if inputs else None
            if gap and (squares(op) or name == "abs" or name in NORMS):
                self._asked.append((gap, user_line()))
            for tensor in inputs:
                self._shown |= self._held.get(tensor) or frozenset()
        elif name in SUBTRACTS and len(inputs) == 2 and (gap := self._mixture(*inputs)):
            self._gaps.put(out, gap)

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        if call.name in DISTANCES and isinstance(call.input, Tensor) and isinstance(call.target, Tensor):
            mixture = self._mixture(call.input, call.target)
            if mixture:
                self._asked.append((mixture, call.where))

    def _mix(self, op: Operation) -> None:
        name, inputs, out = op.name, op.inputs, op.out
        if name == "mul" and len(inputs) == 2:
            drawn = [bool(self._noise.of(t)) for t in inputs]
            if not all(drawn) and any(_is_level(t, out) for t, d in zip(inputs, drawn, strict=True) if not d):
                self._parts.put(out, any(drawn))
        elif name == "add" and len(inputs) == 2:
            if {self._parts.get(t) for t in inputs} == {True, False}:
                self._held.put(out, frozenset((next(self._names),)))
        elif name == "cat" or name in KEEPS:
            held = frozenset[int]().union(*(self._held.get(t) or () for t in inputs))
            if held:
                self._held.put(out, held)

    def _mixture(self, one: Tensor, other: Tensor) -> frozenset[int]:
        """The one that a prediction of its shape is compared with."""
        target = other if one.requires_grad else one
        fits = one.shape == other.shape and one.requires_grad != other.requires_grad
        return (self._held.get(target) or frozenset()) if fits else frozenset()


def _is_level(tensor: Tensor, out: Tensor) -> bool:
    return tensor.ndim == out.ndim and len(tensor) == len(out) > 1
