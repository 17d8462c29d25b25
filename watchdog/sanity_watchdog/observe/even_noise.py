"""Uniform numbers from 0 to 1 that a step adds to data, and asks the network for: normal ones are meant."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from .calls import LossCall, Marks
from .distances import squares
from .loss_kinds import DISTANCES
from .operation import Operation
from .operations import ADDITIONS, FACTORS, RESHAPES, SUBTRACTS
from .site import user_line

DRAWS = ("rand", "rand_like", "uniform")
SAME = RESHAPES | {"detach", "clone", "contiguous", "float", "to", "type", "expand", "expand_as"}
MIXES = ADDITIONS | {"lerp"}


class EvenNoise:
    """Follows uniform draws through one step. ``is_given``: is a tensor data, and nothing that is learned?"""

    def __init__(self, is_given: Callable[[Tensor], bool]) -> None:
        self._is_given = is_given
        self._draws: Marks[str] = Marks()
        self._scaled: Marks[str] = Marks()
        self._gaps: Marks[str] = Marks()
        self._mixed: set[str] = set()
        self._asked: list[str] = []

    def found(self) -> list[str]:
        """Lines that draw what was added to data of its shape, and is a target as it was drawn."""
        return [line for line in self._asked if line in self._mixed]

    def of(self, tensor: Any) -> bool:
        """Is it such a draw, as it was drawn?"""
        return self._draws.get(tensor) is not None

    def drawn(self, out: Tensor) -> None:
        """Such numbers were drawn, for more than one feature of more than one sample."""
        if out.ndim > 1 < out.shape[1] and len(out) > 1:
            line = user_line()
            self._draws.put(out, line)
            self._scaled.put(out, line)

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name in DRAWS and len(op.args) < 2 + (name == "rand") * 8 and not op.kwargs.keys() & {"from", "to"}:
            self.drawn(out)
        elif name in SAME and inputs and (line := self._draws.get(inputs[0])) is not None:
            self._draws.put(out, line)
            self._scaled.put(out, line)
        elif scaled := [line for t in inputs if (line := self._scaled.get(t)) is not None]:
            others = [t for t in inputs if self._scaled.get(t) is None]
            if name in FACTORS and not out.requires_grad:
                self._scaled.put(out, scaled[0])
            elif name in MIXES and any(self._is_given(t) and t.shape == out.shape for t in others):
                self._mixed.add(scaled[0])
            elif name in SUBTRACTS and len(inputs) == 2:
                self._gaps.put(out, self._target(*inputs))
        elif inputs and (line := self._gaps.get(inputs[0])) and (squares(op) or name == "abs"):
            self._asked.append(line)

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        if call.name in DISTANCES and isinstance(call.input, Tensor) and isinstance(call.target, Tensor):
            line = self._target(call.input, call.target)
            self._asked += [line] if line else []

    def _target(self, one: Tensor, other: Tensor) -> str:
        wanted = other if one.requires_grad else one
        meets = one.requires_grad != other.requires_grad and one.shape == other.shape
        return (self._draws.get(wanted) or "") if meets else ""
