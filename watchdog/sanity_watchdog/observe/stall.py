"""A timer beside the run that tells where the main thread is when no batch ends for long."""

import statistics
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from dataclasses import replace
from types import FrameType
from typing import Any

from ..checks.loop import stalled_step
from ..evidence.loop import Stall
from .moment import Moment
from .observer import Observer, every_step
from .row import Row
from .run import Run
from .site import line_of, origin

LEAST_S = 300.0
"""Seconds without a batch that are always allowed: a checkpoint, a slow disk, a recompilation."""
FIRST_S = 1800.0
"""The same before the first batch has ended: it may compile for long."""
TIMES = 20.0
"""Allowed multiples of the median batch."""
TICK_S = 30.0
"""Seconds between two looks."""
STILL = 10
"""Looks in a row that find a validation loop at the same line."""
SHOWN = 12
"""Frames that are shown."""
WINDOW = 64
"""Batches of which the median is taken."""


class StallObserver(Observer):
    """One clock reading per batch; a daemon thread does the rest and ends with the fit."""

    codes = ("WD510",)
    least = LEAST_S
    first = FIRST_S
    tick = TICK_S

    def __init__(self) -> None:
        self._beat = time.monotonic()
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._validating = False
        self._main = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._told = 0.0
        self._found: deque[Stall] = deque()
        self._place = ""
        self._looks = 0
        self._row: Row | None = None

    def start(self, run: Run, at: Moment) -> None:
        self._main = threading.get_ident()
        self._beat = time.monotonic()
        self._thread = threading.Thread(
            target=_watch, args=(weakref.ref(self), self._stop), name="sanity-watchdog-stall", daemon=True
        )
        self._thread.start()

    @every_step
    def batch_end(self, at: Moment, output: Any) -> None:
        now = time.monotonic()
        self._seconds.append(now - self._beat)
        self._beat = now
        if self._found:
            self._emit(at)
        elif at.sampled:
            at.emit(Stall(seconds=self._seconds[-1], limit=self.limit(), median=0.0, place="", **at.tags()))

    def may_rest(self, at: Moment, row: Row) -> bool:
        self._row = row
        return not self._found

    def rested(self, at: Moment, first: int, row: Row) -> None:
        for end in row.ends:
            self._seconds.append(end - self._beat)
            self._beat = end
        self._row = None
        self._emit(at)

    def validation_start(self, at: Moment) -> None:
        self._validating = True
        self._beat = time.monotonic()

    def validation_end(self, at: Moment) -> None:
        self._validating = False
        self._beat = time.monotonic()

    def failed(self, at: Moment, error: BaseException) -> None:
        self._emit(at)

    def end(self, at: Moment) -> None:
        self._emit(at)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def beat(self) -> float:
        """When the last batch ended, in seconds of the monotonic clock; also asked by the thread."""
        row = self._row
        return row.ends[-1] if row is not None and row.ends else self._beat

    def limit(self) -> float:
        """Seconds that the present batch may take."""
        if not self._seconds:
            return self.first
        return max(self.least, TIMES * statistics.median(self._seconds))

    def look(self) -> None:
        """What the thread does at each tick."""
        beat = self.beat()
        waited = time.monotonic() - beat
        frame = sys._current_frames().get(self._main)
        if frame is None:
            return
        inner = f"{id(frame.f_code)}:{frame.f_lineno}"
        self._looks = self._looks + 1 if inner == self._place else 0
        self._place = inner
        still = not self._validating or self._looks >= STILL
        limit = self.limit()
        if waited < limit or self._told == beat or not still:
            return
        self._told = beat
        stall = Stall(
            seconds=waited,
            limit=limit,
            median=statistics.median(self._seconds) if self._seconds else 0.0,
            place=_place(frame),
            stack=tuple(
                f"{line_of(f, line)} {f.f_code.co_name}" for f, line in [*traceback.walk_stack(frame)][:SHOWN][::-1]
            ),
        )
        self._found.append(stall)
        for alert in stalled_step(stall):
            print(f"{alert}\n  main thread: {' < '.join(stall.stack[::-1])}", file=sys.stderr, flush=True)

    def _emit(self, at: Moment) -> None:
        while self._found:
            at.emit(replace(self._found.popleft(), **at.tags()))


def _watch(reference: "weakref.ref[StallObserver]", stop: threading.Event) -> None:
    while (observer := reference()) is not None:
        tick = observer.tick
        del observer
        if stop.wait(tick):
            return
        observer = reference()
        if observer is None:
            return
        try:
            observer.look()
        except Exception:  # noqa: BLE001
            return  # nobody is there to hear it
        del observer


def _place(frame: FrameType) -> str:
    """The innermost frame of the user's own code."""
    walk = [f for f, _ in traceback.walk_stack(frame)]
    mine = next((f for f in walk if origin(f) == 0), walk[0])
    return f"{line_of(mine, mine.f_lineno)} {mine.f_code.co_name}"
