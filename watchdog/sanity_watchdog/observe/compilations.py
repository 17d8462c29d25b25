"""Dynamo's counters while training, for code that is compiled."""

import sys
from typing import Any

from ..evidence.portability import Compilations
from ..evidence.readings import Unseen
from .moment import Moment
from .observer import Observer, in_samples
from .run import Run

KEPT = 32
"""Samples remembered."""
SETTLED = 3
"""Training batches that may compile what they like."""
GIVEN_UP = ("limit exceeded", "limit reached")
"""What the reason says, whichever the version, for which Dynamo leaves a function alone: too many recompilations."""


class CompilationWatch(Observer):
    """Reads counters that Dynamo keeps anyway; never imports it."""

    codes = ("WD410",)

    def __init__(self) -> None:
        self._history: list[tuple[int, int, int]] = []
        self._before = 0

    def start(self, run: Run, at: Moment) -> None:
        self._before = _given_up(_counters())
        at.emit(Unseen(codes=self.codes, reason="nothing compiled", **at.tags()))

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        if at.batch >= SETTLED:
            self._look(at)

    def end(self, at: Moment) -> None:
        self._look(at)

    def _look(self, at: Moment) -> None:
        counters = _counters()
        graphs = int(counters["stats"]["unique_graphs"]) if counters and "stats" in counters else 0
        if not graphs:
            return
        breaks = counters["graph_break"] if counters and "graph_break" in counters else {}
        self._history.append((at.batch, graphs, sum(breaks.values())))
        del self._history[1:-KEPT]
        reasons = sorted(breaks, key=lambda reason: -breaks[reason])
        at.emit(
            Compilations(
                history=tuple(self._history),
                reasons=tuple(str(r)[:80] for r in reasons[:3]),
                given_up=max(0, _given_up(counters) - self._before),
                **at.tags(),
            )
        )


def _counters() -> Any:
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)


def _given_up(counters: Any) -> int:
    refused = counters["unimplemented"] if counters and "unimplemented" in counters else {}
    return sum(n for why, n in refused.items() if any(words in str(why).partition("\n")[0] for words in GIVEN_UP))
