"""One fit as its record tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..alerts import Alert, Severity, printable
from ..summary import Summary


@dataclass(frozen=True)
class WatchedRun:
    """One fit, as its record tells it.

    Attributes:
        name: the record's path, with the number of the fit where the file holds several.
        summary: how it ended; of a fit that never wrote its summary, what is known.
        finished: did it write its summary?
        info: what the run said of itself when it began.
        problems: what of the record could not be read.
        ended: seconds since the epoch of its last record; 0 where it has none.
    """

    name: str
    summary: Summary
    finished: bool = True
    info: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    ended: float = 0.0

    @property
    def started(self) -> float:
        """Seconds since the epoch; 0 where the record does not say."""
        started = self.info.get("started")
        return float(started) if isinstance(started, int | float) else 0.0

    @property
    def verdict(self) -> str:
        """The summary's verdict."""
        return self.summary.verdict

    @property
    def unfinished(self) -> str:
        """Why something may have been left unjudged, whatever was found; empty where nothing was."""
        if not self.finished:
            return f"the record stops at step {self.summary.step}"
        if self.summary.raised:
            return f"the run raised {printable(self.summary.raised, 60)}"
        if self.summary.broken:
            return "a part of the watchdog broke"
        return "nothing was judged" if self.verdict == "incomplete" else ""

    def failing(self, threshold: Severity | None) -> tuple[Alert, ...]:
        """Alerts at or above ``threshold``; none when that is None."""
        return tuple(a for a in self.summary.alerts if threshold is not None and a.severity >= threshold)
