"""Binary cross entropies by hand of raw scores that a clamp makes look like probabilities."""

import weakref
from dataclasses import dataclass

from torch import Tensor

from .bounded import thinned
from .calls import Marks
from .facts import TensorFacts
from .observer import is_plain
from .operation import Operation
from .operations import VIEWS
from .site import user_line

CUT = 0.2
"""Share of the scores at an edge, where they have no gradient. A slope made to fit starts between them."""


@dataclass(frozen=True)
class CutScores:
    """Line of the second logarithm, extremes of the clamped scores, their share at these."""

    where: str
    low: float
    high: float
    edges: float


class CutLogs:
    """Follows clamped scores, of whose tensors the ``facts`` are known, until the logarithms of both answers."""

    def __init__(self, facts: TensorFacts) -> None:
        self._facts = facts
        self._turned: Marks[weakref.ref[Tensor]] = Marks()
        self._logs: Marks[set[bool]] = Marks()
        self.found: list[CutScores] = []

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        first = op.first
        if first is None or not op.out.requires_grad or len(op.inputs) != 1:
            return
        turned = self._turned.get(first)
        if op.name in ("log", "log1p"):
            self._take(first if turned is None else turned(), turned is not None)
        elif op.name in ("rsub", "neg") and self._is_cut(first):
            self._turned.put(op.out, weakref.ref(first))
        elif turned is not None and (op.name in VIEWS or op.name == "add"):
            self._turned.put(op.out, turned)

    def _is_cut(self, scores: Tensor) -> bool:
        origin = self._facts.of(scores).origin
        return origin is not None and origin.name == "clamp"

    def _take(self, scores: Tensor | None, turned: bool) -> None:
        if scores is None or not (self._is_cut(scores) and scores.numel() and is_plain(scores)):
            return
        before = self._logs.get(scores) or set()
        self._logs.put(scores, before | {turned})
        if before and turned not in before and not self.found:
            values = thinned(scores).float()
            low, high = values.aminmax()
            edges = float(((values == low) | (values == high)).float().mean())
            if low >= 0 and high <= 1 and edges > CUT:
                self.found.append(CutScores(user_line(), float(low), float(high), edges))
