"""TensorBoard: readable text for its own Text tab, exact records for tools, a few curves."""

from collections.abc import Mapping, Sequence
from uuid import uuid4

from ..alerts import Alert, Severity
from ..evidence.readings import Histogram, Layers, Scalars
from ..records import (
    Record,
    alert_record,
    cleared_record,
    encode,
    run_record,
    scalars_record,
    state_record,
    summary_record,
)
from ..reports import markdown
from ..summary import Batch, RunInfo, Summary
from .events import Events, own_events, users_events

ALL_LAYERS = 200
"""Vectors per quantity that are all kept; of the next 200 every other one, then every fourth, and so on."""

AGAIN = 1.1
"""Growth of the step after which the state of a quiet run is told again: 150 times in a million steps."""


class TensorBoardSink:
    """Writes through the user's own ``SummaryWriter`` where there is one: a second file beside it could freeze the
    user's curves. Else it makes ``watchdog/`` in the log folder. Nothing is made before there is something to write.
    """

    def __init__(self) -> None:
        self._info = RunInfo()
        self._events: list[Events] | None = None
        self._tag = f"watchdog/alerts/{uuid4().hex[:12]}"
        self._records: list[Record] = []
        self._known: dict[tuple[str, str], Alert] = {}
        self._curves: set[str] = set()
        self._vectors: dict[str, list[tuple[str, ...]]] = {}
        self._samples: dict[str, int] = {}
        self._told: tuple[str, list[str]] | None = None
        self._next = 0.0

    def open(self, info: RunInfo) -> None:
        self._info = info
        self._records.append(run_record(info))

    def write(self, batch: Batch) -> None:
        for reading in batch.readings:
            if isinstance(reading, Scalars):
                self._scalars(reading)
            elif isinstance(reading, Layers):
                self._layers(reading)
            elif isinstance(reading, Histogram):
                for events in self._opened():
                    events.histogram(reading)
        state = batch.verdict, [*batch.vitals]
        if state != self._told or batch.step >= self._next:
            self._told, self._next = state, batch.step * AGAIN
            self._records.append(state_record(batch.step, batch.verdict, batch.vitals))
        if batch.alerts or batch.cleared:
            self._alerts(batch)
        elif self._records:
            self._tell()
        for events in self._events or ():
            events.commit()

    def close(self, summary: Summary) -> None:
        self._records.append(summary_record(summary))
        counts = {s.name.lower(): sum(a.severity is s for a in summary.alerts) for s in Severity}
        self._overview(markdown.closing(summary), counts, summary.step)
        for events in self._opened():
            events.close()

    def _opened(self) -> Sequence[Events]:
        if self._events is None:
            self._events = []
            if self._info.rank == 0 and self._info.directory is not None:
                if self._info.writers:
                    found = [users_events(writer()) for writer in self._info.writers]
                    self._events = [events for events in found if events is not None]
                elif "://" not in self._info.directory:
                    self._events = [own_events(self._info.directory)]
        return self._events

    def _scalars(self, seen: Scalars) -> None:
        for events in self._opened():
            for name, value in seen.values.items():
                events.scalar(f"watchdog/{name}", value, seen.step, exactly=True)
        if first := {n: v for n, v in seen.values.items() if n not in self._curves}:
            self._curves |= first.keys()
            self._records.append(scalars_record(seen.step, first))

    def _layers(self, seen: Layers) -> None:
        known = self._vectors.setdefault(seen.quantity, [])
        if seen.names not in known:
            known.append(seen.names)
        number = known.index(seen.names)
        tag = f"watchdog/layers/{seen.quantity}" + (f"/{number + 1}" if number else "")
        sample = self._samples[tag] = self._samples.get(tag, -1) + 1
        if sample % (1 << max(0, (sample // ALL_LAYERS).bit_length() - 1)) == 0:
            for events in self._opened():
                events.vector(tag, seen.names, seen.values, seen.step)

    def _alerts(self, batch: Batch) -> None:
        self._known.update({a.key: a for a in batch.alerts})
        self._records += [*(alert_record(a) for a in batch.alerts), *(cleared_record(a) for a in batch.cleared)]
        for severity, code in sorted({(a.severity, a.code) for a in batch.alerts}, reverse=True):
            same = [a for a in self._known.values() if (a.severity, a.code) == (severity, code)]
            for events in self._opened():
                events.text(f"watchdog/{severity.name.lower()}/{code}", markdown.table(same), batch.step)
        ranked = sorted(self._known.values(), key=lambda a: (-a.severity, a.step, a.code))
        self._overview(markdown.so_far(batch, ranked), batch.counts, batch.step)

    def _overview(self, text: str, counts: Mapping[str, int], step: int) -> None:
        for events in self._opened():
            events.text("watchdog/0_summary", text, step)
            for noun in ("error", "warning"):
                events.scalar(f"watchdog/{noun}s", counts.get(noun, 0), step)
        self._tell()

    def _tell(self) -> None:
        records, self._records = encode(self._records), []
        for events in self._opened():
            events.record(self._tag, records)
            events.flush()
