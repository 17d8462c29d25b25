"""Numbers that a step draws from generators of its own."""

from typing import Any

import torch
from torch import Tensor

from .calls import Marks
from .operation import Operation
from .operations import DRAWS
from .site import user_line


def own_generator(name: str, kwargs: dict[str, Any]) -> torch.Generator | None:
    """The generator that a call draws from, where it is not a global one and lies on the host."""
    given = kwargs.get("generator") if name in DRAWS else None
    own = isinstance(given, torch.Generator) and given.device.type == "cpu" and given is not torch.default_generator
    return given if own else None


class OwnDraws:
    """Follows numbers for each of so many samples that are drawn from generators of the user's, through one step."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._lines: Marks[frozenset[str]] = Marks()
        self._any = False

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        if own_generator(op.name, op.kwargs) is not None and op.out.ndim and len(op.out) == self._samples > 1:
            self._any = True
            self._lines.put(op.out, frozenset((user_line(),)))
        elif self._any and (found := frozenset[str]().union(*(self._lines.get(t) or () for t in op.inputs))):
            self._lines.put(op.out, found)

    def behind(self, tensor: Tensor) -> frozenset[str]:
        """Lines that drew what went into it."""
        return self._lines.get(tensor) or frozenset()
