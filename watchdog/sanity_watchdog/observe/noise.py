"""Normal numbers that a step draws: what they go into, and whether a target of them was ever shown to the network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .calls import LossCall, Marks
from .distances import squares
from .loss_kinds import DISTANCES
from .observer import is_plain
from .operation import Operation
from .operations import FACTORS, KEEPS_VALUES, NORMS, RESHAPES, SUBTRACTS, VIEWS
from .site import user_line

DRAWS = ("randn", "randn_like", "normal")
KEEPS = RESHAPES | KEEPS_VALUES | {"__getitem__", "type", "expand", "expand_as", "add"}
PRODUCTS = ("mul", "matmul", "mm", "bmm", "einsum")
LEAVES = KEEPS | FACTORS | VIEWS | {"sum", "mean", "sub", "sigmoid", "softmax", "log_softmax"}
"""What leaves products of codes products of codes; behind a layer they are its scores."""
READS = ("numpy", "tolist", "__array__")
FEWEST = 4
"""Values by which a draw is told from others."""
MOST = 64
"""Draws of a step that are followed."""


@dataclass(frozen=True, eq=False)
class Draw:
    """``shape`` of what was drawn at ``where``."""

    shape: tuple[int, ...]
    where: str


@dataclass(frozen=True)
class Unseen:
    """A target of noise at ``where`` that the prediction owes nothing to, but to other noise of the same shape."""

    where: str
    function: str
    drawn: str
    other: str


class Noise:
    """Follows draws through one step. ``is_made``: is a tensor made of data, or learned?"""

    def __init__(self, is_made: Callable[[Tensor], bool]) -> None:
        self._is_made = is_made
        self._pure: Marks[frozenset[Draw]] = Marks()
        self._within: Marks[frozenset[Draw]] = Marks()
        self._velocities: Marks[frozenset[Draw]] = Marks()
        self._codes: Marks[bool] = Marks()
        self._products: Marks[bool] = Marks()
        self._gaps: Marks[tuple[Tensor, Tensor] | Unseen] = Marks()
        self._draws: dict[tuple[float, ...], Draw] = {}
        self._left: set[Draw] = set()
        self._unseen: list[Unseen] = []
        self._seen = False

    def unseen(self) -> list[Unseen]:
        """The targets found, unless a prediction met noise of its own as well."""
        return [] if self._seen else self._unseen

    @property
    def is_asked_for(self) -> bool:
        """Did a prediction meet noise that it was made of?"""
        return self._seen

    def of(self, tensor: Any) -> frozenset[Draw]:
        """The draws that a tensor is made of, where it is made of nothing else."""
        return self._pure.get(tensor) or frozenset()

    def is_product(self, tensor: Any) -> bool:
        """Was it made of products of two codes that are drawn: outputs with noise behind the last layer?"""
        return bool(self._products.get(tensor))

    def drawn(self, out: Tensor) -> None:
        """Normal numbers were drawn."""
        if len(self._draws) >= MOST or not is_plain(out) or out.numel() < FEWEST or out.requires_grad:
            return
        values = tuple(out.detach().flatten()[:FEWEST].tolist())
        draw = self._draws.setdefault(values, Draw(tuple(out.shape), user_line()))
        self._pure.put(out, frozenset((draw,)))
        self._within.put(out, frozenset((draw,)))

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name in DRAWS and not any(self._is_made(t) or (self._within.get(t) and t is not out) for t in inputs):
            self.drawn(out)
            return
        if not self._draws:
            return
        within = frozenset[Draw]().union(*(self._within.get(t) or () for t in inputs))
        if within:
            self._within.put(out, within)
        if out.requires_grad and name in LEAVES and any(self.of(t) or self._codes.get(t) for t in inputs):
            self._codes.put(out, True)
        both = len(inputs) == 2 and all(self._codes.get(t) for t in inputs)
        if (both and name in PRODUCTS) or (name in LEAVES and any(self._products.get(t) for t in inputs)):
            self._products.put(out, True)
        pure = [self._pure.get(t) for t in inputs if t.numel() > 1]
        if pure and all(pure) and (name in KEEPS or name in FACTORS) and not out.requires_grad:
            self._pure.put(out, frozenset[Draw]().union(*(p for p in pure if p)))
        if not out.requires_grad and (velocity := self._velocity(op)):
            self._velocities.put(out, velocity)
        if name in SUBTRACTS and len(inputs) == 2:
            found = self._compare("", inputs[0], inputs[1])
            if found is not None:
                self._gaps.put(out, found)
        elif inputs and (squares(op) or name == "abs" or name in NORMS):
            gap = self._gaps.get(inputs[0])
            if isinstance(gap, Unseen):
                self._unseen.append(gap)

    def written(self, target: Tensor, sources: list[Tensor]) -> None:
        """``target`` was written to."""
        within = frozenset[Draw]().union(*(self._within.get(t) or () for t in (target, *sources)))
        if within:
            self._within.put(target, within)

    def read(self, tensor: Tensor) -> None:
        """It went to the host, and may come back."""
        self._left |= self._within.get(tensor) or frozenset()

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        if call.name in DISTANCES and isinstance(call.input, Tensor) and isinstance(call.target, Tensor):
            found = self._compare(call.name, call.input, call.target)
            if found is not None:
                self._unseen.append(found)

    def _velocity(self, op: Operation) -> frozenset[Draw]:
        """The noise in a difference between noise and data, as it is or in another shape or type."""
        name, inputs = op.name, op.inputs
        if name in RESHAPES | KEEPS_VALUES and inputs:
            return self._velocities.get(inputs[0]) or frozenset()
        if name not in SUBTRACTS or len(inputs) != 2 or inputs[0].shape != inputs[1].shape:
            return frozenset()
        noise, data = inputs if self.of(inputs[0]) else reversed(inputs)
        return frozenset() if self._within.get(data) else self.of(noise)

    def _compare(self, function: str, one: Tensor, other: Tensor) -> Unseen | None:
        if one.requires_grad == other.requires_grad:
            return None
        made, target = (one, other) if one.requires_grad else (other, one)
        wanted = self.of(target) or self._velocities.get(target)
        within = self._within.get(made) or frozenset()
        if not wanted or wanted & self._left:
            return None
        if wanted & within:
            self._seen = True
            return None
        like = next((draw for draw in within if draw.shape == tuple(target.shape)), None)
        if like is None or made.shape != target.shape:
            return None
        return Unseen(user_line(), function or "difference", next(iter(wanted)).where, like.where)
