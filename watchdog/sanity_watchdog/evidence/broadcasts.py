"""Tensors that are broadcast against each other."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True)
class Spread:
    """Shapes that were broadcast against each other, the user's line, and what was done with them there.

    ``sure``: one of them is data, so that pairs cannot be meant.
    """

    where: str
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    operation: str = "subtraction"
    sure: bool = True


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape that both broadcast to, None where they do not fit."""
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(y if x == 1 else x for x, y in pairs)


def batch_meets_batch(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Do shapes of different rank, led by one batch size, broadcast so that every sample meets every other?"""
    if len(a) == len(b) or not a or not b or a[0] != b[0] or a[0] < 2:
        return False
    both = broadcast(a, b)
    return both is not None and math.prod(both) > max(math.prod(a), math.prod(b))


@dataclass(frozen=True, kw_only=True)
class Difference(Evidence):
    """Two tensors that a loss, or the user's own arithmetic, has brought together element by element.

    Attributes:
        function: the loss, or ``subtraction``, ``multiplication``, ``division``, ``addition``.
        spread: shapes of both before they are broadcast, and the user's line.
    """

    function: str
    spread: Spread
