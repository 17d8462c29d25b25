"""What is known of a tensor of a step that is followed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..evidence.broadcasts import Spread
from ..evidence.detached import Cut
from ..evidence.losses import Origin
from .calls import Marks
from .operation import Operation
from .operations import FACTORS, VIEWS
from .pairs import Pairs


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """What is known of a tensor.

    Attributes:
        data: made from the batch. made: parameters went into it. origin, head: see ``LossCall``. unit: of length one
        along some axis, or of one that is learned. norm: the lengths of vectors. cosine: products of unit vectors.
        logs: descends from a ``log_softmax``. axis_added: an axis of length one was put in on purpose. spread:
        differences over two batch axes. pairs: other values over two batch axes. rows, classes: layouts of the samples
        and of a layer's outputs in it. line: factor and shift after a tanh. (0.5, 0.5) make a sigmoid of it. softened:
        what made it before it was divided by a number above 1. grown: 1 for an exponential, 2 for one plus one.
    """

    data: bool = False
    made: bool = False
    origin: Origin | None = None
    head: Tensor | None = None
    unit: bool = False
    norm: bool = False
    cosine: bool = False
    logs: bool = False
    axis_added: bool = False
    spread: Spread | None = None
    pairs: Pairs | None = None
    rows: Tensor | None = None
    classes: Tensor | None = None
    line: tuple[float, float] | None = None
    softened: Origin | None = None
    grown: int = 0

    @property
    def is_raw(self) -> bool:
        """Has a layer made it, and no activation since?"""
        return self.head is not None and self.origin is None

    @property
    def is_known(self) -> bool:
        """Is there anything to remember?"""
        flags = (self.data, self.made, self.unit, self.norm, self.cosine, self.logs, self.axis_added, self.grown)
        return any(flags) or any(
            x is not None
            for x in (self.origin, self.head, self.spread, self.pairs, self.classes, self.line, self.softened)
        )


NOTHING = Fact()


class TensorFacts:
    """Of all tensors of one step."""

    def __init__(self, cuts: Marks[Cut]) -> None:
        self._cuts = cuts
        self._facts: Marks[Fact] = Marks()

    def of(self, tensor: Any) -> Fact:
        """What is known of a tensor."""
        return self._facts.get(tensor) or NOTHING

    def put(self, tensor: Tensor, fact: Fact) -> None:
        """From here on."""
        self._facts.put(tensor, fact)

    def is_data(self, tensor: Tensor) -> bool:
        """Is it made from the batch?"""
        return self.of(tensor).data

    def is_given(self, tensor: Tensor) -> bool:
        """Is it data of the batch, and nothing that a trained part has made?"""
        return self.is_data(tensor) and not tensor.requires_grad and self._cuts.get(tensor) is None

    def is_made(self, tensor: Tensor) -> bool:
        """Is it made of data, or learned?"""
        return tensor.requires_grad or self.is_data(tensor) or self._cuts.get(tensor) is not None

    def is_unit(self, tensor: Tensor) -> bool:
        """Are these vectors of length one?"""
        return self.of(tensor).unit

    def is_scored(self, tensor: Tensor) -> bool:
        """Has a layer made it, with nothing after it but what makes probabilities?"""
        fact = self.of(tensor)
        return fact.is_raw or (fact.origin is not None and fact.origin.name in ("sigmoid", "softmax"))


def softened(op: Operation, fact: Fact) -> Origin | None:
    """What made the numerator that the ``fact`` is of, where an operation divides by a temperature."""
    by = op.args[1] if op.name == "div" and len(op.args) > 1 else None
    return fact.origin if isinstance(by, (int, float)) and by > 1 else None


def joins_sigmoids(name: str, facts: Sequence[Fact]) -> bool:
    """Are probabilities of single answers put side by side?"""
    return name in ("cat", "stack") and all(getattr(f.origin, "name", "") == "sigmoid" for f in facts)


def keeps_length(name: str, inputs: Sequence[Tensor], facts: Sequence[Fact]) -> bool:
    """Is this a view of unit vectors, or all of them times one number?"""
    if name in VIEWS:
        return bool(facts) and facts[0].unit
    rest = [t.numel() for t, f in zip(inputs, facts, strict=True) if not f.unit]
    return name in FACTORS and len(rest) < len(inputs) and all(n == 1 for n in rest)


def divides_by_norm(name: str, facts: Sequence[Fact]) -> bool:
    """Is it a quotient by lengths?"""
    return name == "div" and len(facts) > 1 and facts[1].norm
