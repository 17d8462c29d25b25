"""Weights of positions that do not mean what they should: normalised over the wrong axis, or hidden by a factor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .calls import Marks
from .observer import is_plain
from .operation import Operation
from .operations import FACTORS, MOVES, VIEWS
from .site import user_line

CONTRACTIONS = ("matmul", "bmm")
ADJUSTS = (*FACTORS, "add", "sub", "masked_fill", "where", "dropout")
"""What scores go through on their way to the softmax."""
CANDIDATES = 4
"""Masks looked at."""
HIDDEN = 0.05
"""Share of a mask that must be 0; less may be what a similarity keeps of each sample with itself."""


Axes = tuple[int, int]
LAST: Axes = (-2, -1)
"""Queries and keys in scores, counted from the end."""


@dataclass(frozen=True, eq=False)
class _Masked:
    """Scores that were multiplied by ``mask``. ``normalised``: a softmax over them has run."""

    mask: Tensor
    where: str
    normalised: bool = False


class Weighing:
    """Follows scores through one step; ``is_given``: is a tensor data of the batch that no trained part has made?

    Attributes:
        across: line of a softmax over the queries of a square table, whose weights then sum up the keys.
    """

    def __init__(self, is_given: Callable[[Tensor], bool]) -> None:
        self.across = ""
        self._is_given = is_given
        self._scores: Marks[Axes] = Marks()
        self._weights: Marks[tuple[str, Axes]] = Marks()
        self._masked: Marks[_Masked] = Marks()
        self._open: list[tuple[tuple[int, ...], int, _Masked]] = []
        self._used: set[_Masked] = set()

    def follow(self, op: Operation) -> None:
        """One operation on values made from the batch."""
        name, out = op.name, op.out
        given = [a for a in op.args if isinstance(a, Tensor)]
        if not given or not out.requires_grad:
            return
        if name in ("softmax", "log_softmax"):
            self._normalise(op)
        elif name in CONTRACTIONS or name == "einsum":
            self._contract(op, given)
        elif name in ADJUSTS or (name in VIEWS and name not in MOVES):
            self._carry(name, given, out)
        if name in VIEWS and (masked := self._masked.get(given[0])) is not None and masked.normalised:
            self._masked.put(out, masked)

    def _normalise(self, op: Operation) -> None:
        scores, axis, out = op.args[0], op.argument("dim", 1), op.out
        if not isinstance(axis, int):
            return
        axis %= out.ndim
        square = self._scores.get(scores) if op.name == "softmax" else None
        if square is not None and axis - out.ndim == square[0]:
            self._weights.put(out, (user_line(), square))
        masked = self._masked.get(scores)
        if masked is not None and len(self._open) < CANDIDATES:
            found = _Masked(masked.mask, masked.where, True)
            self._masked.put(out, found)
            self._open.append((tuple(out.shape), axis, found))

    def _contract(self, op: Operation, given: list[Tensor]) -> None:
        name, args, out = op.name, op.args, op.out
        operands = given if name != "einsum" else [t for a in args[1:] for t in (a if isinstance(a, list) else [a])]
        self._used.update(m for t in operands if (m := self._masked.get(t)) is not None and m.normalised)
        weights = self._weights.get(operands[0]) if operands and isinstance(operands[0], Tensor) else None
        if weights is not None and not self.across:
            where, axes = weights
            sums = axes == LAST if name != "einsum" else _sums(args[0], axes)
            self.across = where if sums else ""
        apart = len(operands) == 2 and not any(isinstance(t, torch.nn.Parameter) for t in operands)
        square = (_square(args[0]) if name == "einsum" else LAST) if apart and out.ndim > 2 else None
        if square is not None and out.shape[square[0]] == out.shape[square[1]] > 1:
            self._scores.put(out, square)

    def _carry(self, name: str, given: list[Tensor], out: Tensor) -> None:
        first = given[0]
        axes = self._scores.get(first)
        if axes is not None and _keeps(axes, first, out):
            self._scores.put(out, axes)
        weights = self._weights.get(first)
        if weights is not None and _keeps(weights[1], first, out) and (name == "dropout" or name in VIEWS):
            self._weights.put(out, weights)
        scores, masked = next(((t, m) for t in given if (m := self._masked.get(t)) is not None), (first, None))
        if name == "mul" and len(given) == 2:
            mask = next((t for t in given if not t.requires_grad), None)
            if masked is not None and masked.normalised and mask is not None:  # hidden once more, and really
                self._open = [row for row in self._open if row[-1] is not masked]
            elif masked is not None and masked.normalised and out.numel() > scores.numel():
                self._used.add(masked)  # with values that have features; those of an entropy have the same shape
            elif (
                masked is None
                and mask is not None
                and is_plain(mask)
                and self._is_given(mask)
                and not any(isinstance(t if t._base is None else t._base, torch.nn.Parameter) for t in given)
                and mask.numel() > 1
                and out.ndim > 1
            ):
                self._masked.put(out, _Masked(mask, user_line()))
        elif masked is not None and (name == "dropout" or (name in FACTORS and len(given) == 1)):
            self._masked.put(out, masked)

    def masked(self) -> str:
        """Line of a mask that was multiplied with scores before their softmax. Waits for the device."""
        for shape, axis, found in self._open:
            mask = found.mask.detach()
            if found not in self._used or mask.ndim > len(shape) or not bool(((mask == 0) | (mask == 1)).all()):
                continue
            whole = mask.float().expand(shape)
            rows = whole.amax(axis) > whole.amin(axis)
            if bool(rows.any()) and float((whole == 0).float().mean()) >= HIDDEN:
                return found.where
        return ""


def _keeps(axes: Axes, before: Tensor, after: Tensor) -> bool:
    """Are these axes, and what follows them, the same?"""
    return before.shape[min(axes) :] == after.shape[min(axes) :]


def _letters(equation: Any) -> tuple[list[str], str] | None:
    """Letters of the operands and of the result."""
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return None
    taken, _, left = equation.replace(" ", "").partition("->")
    return taken.split(","), left


def _square(equation: Any) -> Axes | None:
    """Axes of the result that are the first operand's alone, and the second one's."""
    letters = _letters(equation)
    if letters is None or len(letters[0]) != 2:
        return None
    (a, b), left = letters
    queries, keys = [x for x in left if x in a and x not in b], [x for x in left if x in b and x not in a]
    if len(queries) != 1 or len(keys) != 1:
        return None
    return left.index(queries[0]) - len(left), left.index(keys[0]) - len(left)


def _sums(equation: Any, axes: Axes) -> bool:
    """Does it keep the first of these axes of its first operand, and sum over the second?"""
    letters = _letters(equation)
    if letters is None or len(letters[0][0]) < -min(axes):
        return False
    first, left = letters[0][0], letters[1]
    return first[axes[0]] in left and first[axes[1]] not in left
