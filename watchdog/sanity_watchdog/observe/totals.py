"""How the terms of a step's loss are summed up, and the number by which their sum is multiplied in the end."""

import math
from dataclasses import dataclass, replace

from torch import Tensor

from .calls import Marks, Trace
from .operation import Operation
from .operations import ADDITIONS, FACTORS, VIEWS


@dataclass(frozen=True)
class Total:
    """A number that the loss is made of.

    Attributes:
        scale: by which all of it is multiplied.
        weight: what its terms are multiplied by besides, added up.
        terms: how many these are. called: is the value of a loss function among them?
        divisors: numbers by which each of them was divided.
    """

    scale: float = 1.0
    weight: float = 1.0
    terms: int = 1
    called: bool = False
    divisors: frozenset[float] = frozenset()


class Totals:
    """Follows numbers that have a gradient through one step."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._totals: Marks[Total] = Marks()

    def of(self, tensor: Tensor) -> Total:
        """How it came about, as far as it is known."""
        called = any(call.value is tensor for call in self._trace.calls)
        return self._totals.get(tensor) or Total(called=called)

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, args, inputs, out = op.name, op.args, op.inputs, op.out
        if out.numel() != 1 or not out.requires_grad or any(t.numel() != 1 for t in inputs):
            return
        parts = [self.of(t) for t in inputs if t.requires_grad]
        if name in ADDITIONS and parts:
            self._totals.put(out, _added(parts))
        elif len(parts) != 1:
            return
        elif name in VIEWS:
            self._totals.put(out, parts[0])
        elif name in FACTORS and len(args) > 1:
            factor = math.prod(float(a) for a in args[:2] if not getattr(a, "requires_grad", False))
            divides = name == "div" and factor and getattr(args[0], "requires_grad", False)
            if name != "div" or divides:
                part = replace(parts[0], scale=parts[0].scale * (1 / factor if divides else factor))
                by = frozenset((factor,)) if divides else frozenset[float]()
                self._totals.put(out, replace(part, divisors=part.divisors | by))


def _added(parts: list[Total]) -> Total:
    """Terms side by side: what scales all of them alike scales their sum."""
    scale = parts[0].scale if len({part.scale for part in parts}) == 1 else 1.0
    weight = sum(abs(part.weight * part.scale / scale) for part in parts) if scale else 0.0
    divisors = frozenset.intersection(*(part.divisors for part in parts))
    return Total(scale, weight, sum(part.terms for part in parts), any(part.called for part in parts), divisors)
