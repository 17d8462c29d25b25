"""Errors written by hand: the distance of outputs from given targets, by what is done to their difference."""

import math
from collections.abc import Callable

from torch import Tensor

from .calls import Marks
from .operation import Operation
from .operations import EXTREMES, FACTORS, NORMS, RESHAPES, SUBTRACTS

MOST = 1 << 16
"""Values of a factor, or of a choice between two multiples of a difference, that are looked at."""
Multiple = tuple[object, int]
"""Which difference, and the sign of what it is multiplied by."""


class Distances:
    """Follows differences through one step. ``is_given``: is a tensor data of the batch, not made by a trained part?"""

    def __init__(self, is_given: Callable[[Tensor], bool]) -> None:
        self._is_given = is_given
        self._multiples: Marks[Multiple] = Marks()

    def follow(self, op: Operation) -> tuple[str, int]:
        """An operation has run: which distance is its result, and is it that (1) or minus that (-1, else 0)?"""
        name, inputs, out = op.name, op.inputs, op.out
        if op.is_weighed:
            return "", 0
        known = [self._multiples.get(t) for t in inputs]
        found = next((k for k in known if k is not None), None)
        if name in SUBTRACTS and len(inputs) == 2 and inputs[0].requires_grad != inputs[1].requires_grad:
            if self._is_given(inputs[inputs[0].requires_grad]):
                self._multiples.put(out, (object(), 1))
        elif found is None:
            return "", 0
        elif name in RESHAPES:
            self._multiples.put(out, found)
        elif name == "neg":
            self._multiples.put(out, (found[0], -found[1]))
        elif name == "abs" or name in NORMS:
            return "absolute error" if name == "abs" else "norm of the error", 1
        elif squares(op):
            return "squared error", 1
        elif name in FACTORS and len(op.args) > 1:
            self._scale(op, found)
        elif (name in EXTREMES or name == "where") and _are_opposite([k for k in known if k is not None]):
            return "pinball loss", one_sign(out.detach())
        return "", 0

    def _scale(self, op: Operation, found: Multiple) -> None:
        known = next(t for t in op.inputs if self._multiples.get(t) is not None)
        factors = [a for a in op.args[:2] if a is not known]
        if len(factors) != 1 or (op.name == "div" and op.args[0] is not known):
            return
        factor = factors[0]
        if isinstance(factor, Tensor):
            sign = 0 if factor.requires_grad else one_sign(factor.detach())
        else:
            number = float(factor) if isinstance(factor, (int, float)) else math.nan
            sign = (number > 0) - (number < 0)
        if sign:
            self._multiples.put(op.out, (found[0], sign * found[1]))


def _are_opposite(chosen: list[Multiple]) -> bool:
    return len(chosen) == 2 and chosen[0][0] is chosen[1][0] and chosen[0][1] == -chosen[1][1]


def squares(op: Operation) -> bool:
    power = op.args[1] if len(op.args) > 1 else None
    return (
        op.name == "square"
        or (op.name == "pow" and isinstance(power, (int, float)) and power == 2)
        or (op.name == "mul" and power is not None and op.args[0] is power)
    )


def one_sign(values: Tensor) -> int:
    """1 where nothing is below 0, -1 where nothing is above it, 0 where neither is certain."""
    if not 0 < values.numel() <= MOST or values.is_complex():
        return 0
    return int(bool((values >= 0).all())) - int(bool((values <= 0).all()))
