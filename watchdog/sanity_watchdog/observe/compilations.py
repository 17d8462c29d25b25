"""Dynamo's counters while training, for code that is compiled."""

import sys
from types import CodeType
from typing import Any

from ..evidence.portability import Compilations
from ..evidence.readings import Unseen
from .moment import Moment
from .observer import Observer, in_samples
from .run import Run
from .site import is_users, line_of_code

KEPT = 32
"""Samples remembered."""
MOST = 120
"""Characters of a guard."""
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
        self._failed: dict[CodeType, int] = {}

    def start(self, run: Run, at: Moment) -> None:
        self._before = _given_up(_counters())
        self._failed = {code: len(guards) for code, guards in _failures().items()}
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
        again = {code: guards[self._failed.get(code, 0) :] for code, guards in _failures().items()}
        code, guards = max(again.items(), key=lambda item: len(item[1]), default=(None, []))
        named = (code.co_name, line_of_code(code)) if code is not None and guards and is_users(code) else ("", "")
        reasons = sorted(breaks, key=lambda reason: -breaks[reason])
        at.emit(
            Compilations(
                history=tuple(self._history),
                reasons=tuple(str(r)[:80] for r in reasons[:3]),
                given_up=max(0, _given_up(counters) - self._before),
                function=named[0],
                where=named[1],
                guard=_assumed(guards[-1]) if guards else "",
                **at.tags(),
            )
        )


def _counters() -> Any:
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)


def _failures() -> dict[CodeType, list[str]]:
    """Guards that made Dynamo compile a function again, oldest first."""
    return dict(getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", None) or {})


def _assumed(failure: Any) -> str:
    """Of a failure as Dynamo keeps it, ``frame/number: guard  # line``, the guard."""
    return str(failure).partition(": ")[2].partition("  #")[0].strip()[:MOST]


def _given_up(counters: Any) -> int:
    refused = counters["unimplemented"] if counters and "unimplemented" in counters else {}
    return sum(n for why, n in refused.items() if any(words in str(why).partition("\n")[0] for words in GIVEN_UP))
