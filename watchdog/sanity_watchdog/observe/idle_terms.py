"""Terms of a loss through which no gradient flows, although trained parts have made what they compare."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..evidence.detached import Cut
from .calls import LossCall, Marks
from .distances import squares
from .observer import is_plain
from .operation import Operation
from .operations import FACTORS, SUBTRACTS, VIEWS
from .site import user_line

JOINS = ("add", "stack", "cat")
REDUCES = VIEWS | {"mean", "sum"}
BLIND = frozenset(("argmax", "argmin", "eq", "ne", "gt", "ge", "lt", "le", "round", "floor", "ceil", "sign"))
"""What has no slope: nobody cuts a gradient with these on purpose, so what follows from them is meant to be learned."""


@dataclass(frozen=True)
class IdleTerm:
    """``function``: what made it; ``where``: the line. ``cut``: where the gradient was lost. ``pair``: compared."""

    function: str
    where: str
    cut: Cut
    pair: frozenset[int]


class IdleTerms:
    """Follows comparisons without a gradient through one step. ``cut``: where did a tensor lose its gradient?"""

    def __init__(self, cut: Callable[[Tensor], Cut | None]) -> None:
        self._cut = cut
        self._gaps: Marks[frozenset[int]] = Marks()
        self._terms: Marks[tuple[IdleTerm, ...]] = Marks()
        self._learned: set[frozenset[int]] = set()
        self._slopes: Marks[bool] = Marks()

    def of(self, loss: Tensor) -> list[IdleTerm]:
        """Those that were added to ``loss``; not where what they compare is compared with a gradient as well."""
        return [term for term in self._terms.get(loss) or () if loss.requires_grad and term.pair not in self._learned]

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        if isinstance(call.value, Tensor) and isinstance(call.input, Tensor) and isinstance(call.target, Tensor):
            self._compare(call.name, call.where, _pair(call.input, call.target), call.value)

    def _compare(self, function: str, where: str, pair: frozenset[int], value: Tensor) -> None:
        if value.requires_grad:
            self._learned.add(pair)
        elif (cut := self._cut(value)) is not None:
            self._terms.put(value, (IdleTerm(function, where, cut, pair),))

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        if op.is_weighed:
            return
        name, inputs, out = op.name, op.inputs, op.out
        if name in SUBTRACTS:
            if len(inputs) == 2 and inputs[0].numel() > 1:
                self._gaps.put(out, _pair(*inputs))
            elif len(inputs) == 2 and len(_pair(*inputs)) == 1:
                self._slopes.put(out, True)  # a loss less its own value: its slope for another value
            elif len(inputs) == 2 and inputs[1].requires_grad and name == "sub":
                self._terms.put(out, self._terms.get(inputs[0]) or ())
            return
        gap = self._gaps.get(inputs[0]) if inputs else None
        if gap is not None:
            if squares(op) or name == "abs":
                self._compare("squared error" if name != "abs" else "absolute error", user_line(), gap, out)
            return
        known = [term for t in inputs for term in self._terms.get(t) or ()]
        if name == "add" and len(inputs) == 2:
            known += [t for one, other in (inputs, inputs[::-1]) if (t := self._blind(one, other)) is not None]
        if known and (name in JOINS or name in REDUCES or _weighs(op.name, op.args)):
            self._terms.put(out, tuple(dict.fromkeys(known)))

    def _blind(self, value: Tensor, learned: Tensor) -> IdleTerm | None:
        """A number behind an operation without a slope that is added to a loss."""
        if value.requires_grad or not learned.requires_grad or value.numel() != 1 or self._slopes.get(learned):
            return None
        cut = self._cut(value)
        if (
            cut is None
            or cut.operation not in BLIND
            or self._terms.get(value)
            or not is_plain(value)
            or not float(value)
        ):
            return None
        return IdleTerm("a number", user_line(), cut, frozenset((id(value),)))


def _pair(one: Tensor, other: Tensor) -> frozenset[int]:
    """What is compared, by the memory that it lies in: a detached tensor shares it."""
    return frozenset(t.data_ptr() if is_plain(t) else id(t) for t in (one, other))


def _weighs(name: str, args: tuple[Any, ...]) -> bool:
    """Is it a product with, or a quotient by, a number other than zero?"""
    if name not in FACTORS or len(args) < 2:
        return False
    factors = [a for a in args[:2] if isinstance(a, (int, float))]
    return len(factors) == 1 and factors[0] > 0 and (name != "div" or factors[0] is args[1])
