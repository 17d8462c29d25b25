"""Looks at the update counts of ``torchmetrics`` objects: no state is read."""

import sys
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..evidence.loop import MetricsUsed, MetricUse
from ..evidence.readings import Unseen
from .moment import Moment
from .observer import Observer
from .run import Run

MOST = 64
"""Metrics that are followed; looking at one takes 0.1 µs per step."""


@dataclass
class _Track:
    name: str
    metric: Any
    last: int = 0
    held: int = 0
    trained: int = 0
    sanity: int = 0
    validated: int = 0
    computed: bool = False

    def count(self) -> int:
        return getattr(self.metric, "_update_count", 0)

    def new(self) -> int:
        """Updates since the last look; after a reset, those since the reset."""
        before, self.last = self.last, self.count()
        return self.last - before if self.last >= before else self.last

    def use(self) -> MetricUse:
        return MetricUse(
            name=self.name,
            kind=type(self.metric).__name__,
            held=self.held,
            trained=self.trained,
            sanity=self.sanity,
            validated=self.validated,
            computed=self.computed,
        )


def metrics_of(module: nn.Module) -> list[tuple[str, Any]]:
    """Names and metrics in a module; empty where ``torchmetrics`` was never imported."""
    kind = getattr(sys.modules.get("torchmetrics"), "Metric", None)
    if kind is None:
        return []
    return [(name, m) for name, m in module.named_modules() if isinstance(m, kind)][:MOST]


class MetricObserver(Observer):
    """Which stages update a metric, and whether it was reset between them."""

    codes = ("WD507",)

    def __init__(self) -> None:
        self._tracks: list[_Track] | None = None
        self._started = False
        self._checked = False

    def _all(self, at: Moment) -> list[_Track]:
        if self._tracks is None:
            self._tracks = [_Track(name, m) for name, m in metrics_of(at.run.module)]
        return self._tracks

    def start(self, run: Run, at: Moment) -> None:
        if not self._all(at):
            at.emit(Unseen(codes=("WD507",), reason="no torchmetrics object in the module", **at.tags()))

    def batch(self, at: Moment, batch: Any) -> None:
        tracks = self._all(at)
        for track in tracks:
            track.last = track.count()
        if self._started:
            return
        self._started = True
        if self._checked:
            for track in tracks:
                track.held = track.sanity = track.last
            self._tell(at)

    def batch_end(self, at: Moment, output: Any) -> None:
        for track in self._tracks or ():
            track.trained += track.new()

    def validation_start(self, at: Moment) -> None:
        self._checked = self._checked or not self._started
        for track in self._all(at):
            track.held = track.last = track.count()

    def validation_end(self, at: Moment) -> None:
        for track in self._all(at):
            emptied = track.count() < track.held  # its value was used, then it was reset
            new = max(track.new(), emptied)
            if self._started:
                track.validated += new
            track.computed |= emptied or getattr(track.metric, "_computed", None) is not None
        if self._started:
            self._tell(at)

    def _tell(self, at: Moment) -> None:
        if self._tracks:
            tags = {**at.tags(), "stage": "validation"}
            at.emit(MetricsUsed(uses=tuple(t.use() for t in self._tracks), **tags))
