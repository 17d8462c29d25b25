"""Log-scales and what they scale: does a step's loss fall with both at once, so that nothing holds them?

A tensor's size is e to some logarithm, its own or one that was exponentiated. Sums are followed as the signs with which
such logarithms, and squares that grow (1) or shrink (-1) with them, enter.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .calls import Marks
from .distances import one_sign, squares
from .operation import Operation
from .operations import FACTORS, NORMS, SUBTRACTS, VIEWS
from .site import user_line

JOINS = VIEWS | {"add", "cat", "stack", "where", "masked_fill", "positive"}
LINEAR = JOINS | {"sum", "mean"}
MOST = 256
"""Logarithms that are followed at a time."""


@dataclass(eq=False)
class Log:
    """A logarithm of a size. ``where``: the line that made a size of it, or it of a size."""

    where: str = ""


Key = tuple[Log, int]
"""A logarithm itself (0), or a positive value that grows (1) or shrinks (-1) with it."""
Sum = Mapping[Key, int]
"""Sign by key; 0 where both occur."""
Sizes = Mapping[Log, int]
"""How a tensor's size goes with logarithms."""


class LogScales:
    """Follows logarithms through one step. ``is_error``: is a tensor made of losses that are never negative?"""

    def __init__(self, is_error: Callable[[Tensor], bool]) -> None:
        self._is_error = is_error
        self._sums: Marks[Sum] = Marks()
        self._own: Marks[Log] = Marks()
        self._sizes: Marks[tuple[Log, int]] = Marks()
        self._scaled: Marks[Sizes] = Marks()
        self._positive: Marks[bool] = Marks()

    def falling(self, loss: Tensor) -> list[str]:
        """Lines of the logarithms with which ``loss`` falls twice: with themselves, and with what they scale."""
        total = self._sums.get(loss) or {}
        found = []
        for log in dict.fromkeys(log for log, kind in total if not kind):
            alone, grows, shrinks = (total.get((log, kind), 0) for kind in (0, 1, -1))
            if (alone > 0 and grows > 0 and (log, -1) not in total) or (alone < 0 < shrinks and (log, 1) not in total):
                found.append(log.where)
        return found

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, args, inputs, out = op.name, op.args, op.inputs, op.out
        if not inputs or not out.requires_grad or op.is_weighed:
            return
        if name in ("exp", "log"):
            self._exponent(inputs[0], out) if name == "exp" else self._logarithm(inputs[0], out)
        elif squares(op) or name == "abs" or name in NORMS:
            self._square(inputs[0], out)
        elif name in LINEAR or name in SUBTRACTS or name == "neg":
            self._add(name, args, inputs, out)
        elif name in FACTORS:
            self._multiply(name, args, inputs, out)
        elif name in ("softplus", "sigmoid", "sqrt"):
            self._positive.put(out, True)

    def _sum_of(self, tensor: Tensor) -> Sum:
        if not tensor.requires_grad:
            return {}
        known = self._sums.get(tensor)
        if known is None:
            known = {(self._log_of(tensor), 0): 1}
            self._sums.put(tensor, known)
        return known

    def _log_of(self, tensor: Tensor) -> Log:
        log = self._own.get(tensor) or Log()
        self._own.put(tensor, log)
        return log

    def _size_of(self, tensor: Any) -> Sizes:
        """How its size goes with what it is known to be scaled by, or with its own logarithm."""
        if not isinstance(tensor, Tensor) or not tensor.requires_grad:
            return {}
        size = self._sizes.get(tensor)
        if size is None:
            size = Log(), 1
            self._sizes.put(tensor, size)
        return _joined([self._scaled.get(tensor) or {}, {size[0]: size[1]}])

    def _exponent(self, exponent: Tensor, out: Tensor) -> None:
        terms = list(self._sum_of(exponent).items())
        if len(terms) == 1 and terms[0][1] and not terms[0][0][1]:
            ((log, _), sign) = terms[0]
            log.where = log.where or user_line()
            self._sizes.put(out, (log, sign))
        self._positive.put(out, True)

    def _logarithm(self, size: Tensor, out: Tensor) -> None:
        known = self._size_of(size) and self._sizes.get(size)
        if known:
            known[0].where = known[0].where or user_line()
            self._sums.put(out, {(known[0], 0): known[1]})

    def _square(self, root: Tensor, out: Tensor) -> None:
        self._positive.put(out, True)
        if root.requires_grad:
            size = self._sizes.get(root)
            if size is not None:
                self._sizes.put(out, size)
            self._sums.put(out, _as_keys(self._scaled.get(root) or {}))

    def _add(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> None:
        signs = [1] * len(inputs)
        if name == "neg":
            signs = [-1]
        elif name in SUBTRACTS:
            first = inputs[0] is args[0] and name == "sub"
            signs = [1 if (i == 0) == first else -1 for i in range(len(inputs))]
            if len(inputs) == 1:
                signs = [1 if first else -1]
        total = _joined(_times(self._sum_of(t), sign) for t, sign in zip(inputs, signs, strict=True))
        if 0 < len(total) <= MOST:
            self._sums.put(out, total)
        if name in JOINS or name in SUBTRACTS or name == "neg":
            scaled = _joined(self._scaled.get(t) or {} for t in inputs)
            if 0 < len(scaled) <= MOST:
                self._scaled.put(out, scaled)
        if len(inputs) == 1 and name in VIEWS:
            size = self._sizes.get(inputs[0])
            if size is not None:
                self._sizes.put(out, size)
        if name not in SUBTRACTS and name != "neg" and all(self._is_positive(t) for t in inputs):
            self._positive.put(out, True)

    def _multiply(self, name: str, args: tuple[Any, ...], inputs: list[Tensor], out: Tensor) -> None:
        if len(args) < 2:
            return
        a, b = args[:2]
        divides = name == "div"
        learned = [t for t in (a, b) if isinstance(t, Tensor) and t.requires_grad]
        if len(learned) == 1:
            one, factor = (a, b) if learned[0] is a else (b, a)
            self._weigh(one, factor, divides and one is b, out)
        if len(learned) == 2 or (divides and learned and learned[0] is b):
            below = {log: -way for log, way in self._size_of(b).items()} if divides else self._size_of(b)
            sizes = _joined([self._size_of(a), below])
            if len(sizes) <= MOST:
                self._scaled.put(out, sizes)
                if self._is_positive(a) and self._is_positive(b):
                    self._positive.put(out, True)
                    grown = _joined([self._grown(a), self._grown(b, -1 if divides else 1), _as_keys(sizes)])
                    if len(grown) <= MOST:
                        self._sums.put(out, grown)

    def _weigh(self, one: Tensor, factor: Any, below: bool, out: Tensor) -> None:
        """``one`` times a factor without a gradient, or that over ``one``."""
        if isinstance(factor, Tensor):
            sign = one_sign(factor.detach())
        else:
            number = float(factor) if isinstance(factor, (int, float)) else 0.0  # NumPy compares to what has no minus
            sign = (number > 0) - (number < 0)
        size = self._sizes.get(one)
        if size is not None and sign > 0:
            self._sizes.put(out, (size[0], -size[1] if below else size[1]))
        if sign > 0 and self._is_positive(one):
            self._positive.put(out, True)
        if below:
            return
        scaled = self._scaled.get(one)
        if scaled:
            self._scaled.put(out, scaled)
        if sign:
            self._sums.put(out, _times(self._sum_of(one), sign))

    def _grown(self, tensor: Any, way: int = 1) -> Sum:
        """What a positive value grows with; ``way`` -1: its inverse."""
        known = self._sums.get(tensor) if isinstance(tensor, Tensor) else None
        return {(log, way * kind): sign for (log, kind), sign in (known or {}).items() if kind}

    def _is_positive(self, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return isinstance(value, (int, float)) and value > 0
        return bool(self._positive.get(value)) or self._is_error(value)


def _joined(several: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for signs in several:
        for key, sign in signs.items():
            found[key] = sign if found.get(key, sign) == sign else 0
    return found


def _as_keys(sizes: Sizes) -> Sum:
    return {(log, way): 1 for log, way in sizes.items() if way}


def _times(signs: Mapping[Any, int], sign: int) -> dict[Any, int]:
    return {key: sign * s for key, s in signs.items()}
