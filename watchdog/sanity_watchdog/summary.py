"""What the logger hands to its sinks, and what a sink is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .alerts import Alert
from .evidence.base import Evidence

VERDICTS = ("pass", "warn", "fail", "incomplete")


def _to_nowhere(_: str) -> None:
    pass


@dataclass(frozen=True)
class RunInfo:
    """Where a run writes, and under which circumstances it takes place.

    Attributes:
        directory: folder of the run's logs; None where nothing may be written (``fast_dev_run``).
        record: path of ``watchdog.jsonl``; None where it is not wanted.
        writers: callables that give the user's own TensorBoard ``SummaryWriter``; called when there is something to
            write, on rank zero only.
        echo: prints a line on stderr, through a live progress bar's own ``print``.
        rank: this process. world: number of processes. fit: number of this fit in its process, from 1.
        versions: of python, torch, lightning and this package.
        settings: the callback's settings as data.
        started: seconds since the epoch.
    """

    directory: str | None = None
    record: str | None = None
    writers: tuple[Callable[[], Any], ...] = ()
    echo: Callable[[str], None] = _to_nowhere
    rank: int = 0
    world: int = 1
    fit: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0


@dataclass(frozen=True)
class Ignored:
    """An alert that the user silenced on purpose: the entry that did it, and the reason given for it."""

    alert: Alert
    entry: str
    reason: str = ""


@dataclass(frozen=True)
class Batch:
    """News of one step.

    Attributes:
        step: the user's x-axis step.
        alerts: alerts that are new, came back, grew worse, or reached 10, 100, … sightings; ranked.
        cleared: alerts whose condition was judged again and is gone.
        verdict: of the run so far.
        counts: number of open errors, warnings and infos so far, by severity name.
        readings: ``Scalars``, ``Layers`` and ``Histogram`` since the last batch.
        vitals: fragments of the closing line by key.
    """

    step: int
    alerts: tuple[Alert, ...] = ()
    cleared: tuple[Alert, ...] = ()
    verdict: str = "pass"
    counts: Mapping[str, int] = field(default_factory=dict)
    readings: tuple[Evidence, ...] = ()
    vitals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """What there is to say when a run is over.

    Attributes:
        verdict: one of ``VERDICTS``.
        alerts: ranked, most likely root cause first; symptoms that a root cause explains are left out.
        explained: those symptoms.
        ignored: silenced alerts.
        judged: codes that came to a verdict.
        skipped: code to the reason why it did not.
        broken: part of the watchdog to its traceback.
        unused_ignores: entries of ``ignore`` that silenced nothing.
        vitals: fragments of the closing line by key.
        step: last step. batches: training batches seen. attempts: optimizer steps attempted.
        stopped_by: the policy that stopped the run, in words; empty where none did.
        raised: class of the exception of the user's that ended the run; empty where none did.
        unwritten: sinks that could not write.
    """

    verdict: str
    alerts: tuple[Alert, ...] = ()
    explained: tuple[Alert, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    judged: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    unused_ignores: tuple[str, ...] = ()
    vitals: Mapping[str, str] = field(default_factory=dict)
    step: int = 0
    batches: int = 0
    attempts: int = 0
    stopped_by: str = ""
    raised: str = ""
    unwritten: tuple[str, ...] = ()


class Sink(Protocol):
    """Where the logger writes. A sink that raises is switched off with one console warning; training goes on."""

    def open(self, info: RunInfo) -> None:
        """A run begins. Nothing needs to be created yet."""

    def write(self, batch: Batch) -> None:
        """News of one step."""

    def close(self, summary: Summary) -> None:
        """The run is over, one way or another."""
