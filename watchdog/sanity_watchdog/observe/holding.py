"""What optimizers hold."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor


def held_by(*optimizers: Any) -> Iterator[Tensor]:
    """Parameters, or other tensors, of all their parameter groups, in order; one that is held twice comes twice."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def ids_held_by(*optimizers: Any) -> set[int]:
    """The same by ``id``."""
    return {id(tensor) for tensor in held_by(*optimizers)}
