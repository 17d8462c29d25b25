"""One fit as its record tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..alerts import Alert, Severity
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
    """

    name: str
    summary: Summary
    finished: bool = True
    info: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The summary's verdict."""
        return self.summary.verdict

    def failing(self, threshold: Severity | None) -> tuple[Alert, ...]:
        """Alerts at or above ``threshold``; none when that is None."""
        return tuple(a for a in self.summary.alerts if threshold is not None and a.severity >= threshold)
