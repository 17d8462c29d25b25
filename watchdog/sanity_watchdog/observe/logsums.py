"""Logarithms of probabilities written by hand: values minus the logarithm of the sum of their exponentials."""

import weakref

from torch import Tensor

from .calls import Marks
from .operation import Operation
from .operations import RESHAPES

MOVES = RESHAPES | {"flip"}
Source = tuple["weakref.ref[Tensor]", bool]
"""Whose exponentials, and are they summed up step by step, as in Cox's partial likelihood?"""


class LogSums:
    """Follows exponentials through one step."""

    def __init__(self) -> None:
        self._exponentials: Marks[Source] = Marks()
        self._logs: Marks[Source] = Marks()
        self._roots: Marks[weakref.ref[Tensor]] = Marks()

    def follow(self, op: Operation) -> str:
        """An operation has run: what its result is the logarithm of, or nothing."""
        name, inputs, out = op.name, op.inputs, op.out
        if op.is_weighed:
            return ""
        if len(inputs) == 1:
            self._follow_one(name, inputs[0], out)
        elif name == "sub" and len(inputs) == 2 and op.args[0] is inputs[0]:
            source = self._logs.get(inputs[1])
            if source is not None and source[0]() is self._root(inputs[0]):
                return "partial likelihood" if source[1] else "log_softmax"
        return ""

    def _follow_one(self, name: str, given: Tensor, out: Tensor) -> None:
        if name == "exp":
            self._exponentials.put(out, (weakref.ref(self._root(given)), False))
        elif name in ("logsumexp", "logcumsumexp"):
            self._logs.put(out, (weakref.ref(self._root(given)), name == "logcumsumexp"))
        elif name in ("cumsum", "sum", "log") and (source := self._exponentials.get(given)) is not None:
            (self._logs if name == "log" else self._exponentials).put(out, (source[0], source[1] or name == "cumsum"))
        elif name in MOVES or name == "add":
            for marks in (self._exponentials, self._logs):
                if (source := marks.get(given)) is not None:
                    marks.put(out, source)
            if name in MOVES:
                self._roots.put(out, weakref.ref(self._root(given)))

    def _root(self, tensor: Tensor) -> Tensor:
        """What it is a view of, turned round or in another shape."""
        known = self._roots.get(tensor)
        root = None if known is None else known()
        return tensor if root is None else root
