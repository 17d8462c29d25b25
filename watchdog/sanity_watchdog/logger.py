"""The one diagnostics logger: it judges evidence, keeps the alerts, and tells every sink."""

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .alerts import Alert, Severity
from .checks import CHECKS
from .checks.check import Check
from .checks.judge import Judgement, judge
from .checks.watchdog import watchdog_failed
from .evidence.base import Evidence
from .evidence.readings import Histogram, Layers, Scalars, Unseen, Vital
from .evidence.watchdog import Closing, OwnFault
from .handlers import from_handler
from .ranking import explain, ranked
from .settings import Settings
from .summary import Batch, Ignored, RunInfo, Sink, Summary

SHOW_AGAIN = frozenset(10**n for n in range(1, 10))


class DiagnosticsLogger:
    """Merges, ranks, counts, clears and re-arms alerts; all state of alerts lives here.

    Args:
        settings: what is selected, ignored and set.
        sinks: where news goes.
        on_alert: called with each alert that is new.
        checks: the registry.
    """

    def __init__(
        self,
        settings: Settings,
        sinks: Sequence[Sink] = (),
        on_alert: Callable[[Alert], None] | None = None,
        checks: Sequence[Check[Any]] = CHECKS,
    ) -> None:
        self.settings = settings
        self._checks = [c for c in checks if settings.selected(c)]
        self._by_kind: dict[type[Evidence], list[Check[Any]]] = {}
        self._implied_by = {c.code: c.implied_by for c in checks}
        self._sinks = list(sinks)
        self._on_alert = on_alert
        self._info = RunInfo()
        self._open: dict[tuple[str, str], Alert] = {}
        self._cleared: dict[tuple[str, str], Alert] = {}
        self._ignored: dict[tuple[str, str], Ignored] = {}
        self._news: dict[tuple[str, str], Alert] = {}
        self._told: dict[tuple[str, str], Severity] = {}
        self._just_cleared: list[Alert] = []
        self._readings: list[Evidence] = []
        self._vitals: dict[str, str] = {}
        self._judged: set[str] = set()
        self._judged_stepping: set[str] = set()
        self._skipped: dict[str, str] = {}
        self._unseen: list[Unseen] = []
        self._broken: dict[str, str] = {}
        self._step = 0
        self.stepping = False
        self.closed = False
        self.summary = Summary("incomplete")
        self._unwritten: list[str] = []

    def open(self, info: RunInfo) -> None:
        """A run begins."""
        self._info = info
        self._each_sink("open", info)
        if self.settings.policy.notice:
            self._say(self.settings.policy.notice)

    def adopt(self, alert: Alert) -> None:
        """An alert that another rank has judged; where it tells of a fault of ours, this run is incomplete as well."""
        if alert.code == watchdog_failed.code:
            rank = alert.ranks[0]
            self._broken.update({f"{what} of rank {rank}": alert.message for what in alert.subjects})
        self._raise(alert)

    # -- evidence in

    def take(self, seen: Evidence) -> None:
        """Judge one piece of evidence, or keep a reading."""
        self._step = max(self._step, seen.step)
        if isinstance(seen, Vital):
            self._vitals[seen.key] = seen.text
        elif isinstance(seen, (Scalars, Layers, Histogram)):
            self._readings.append(seen)
        elif isinstance(seen, Unseen):
            self._unseen.append(seen)
        else:
            self._keep(judge(seen, self._concerned(type(seen)), self.settings.options_of), seen)

    def _concerned(self, kind: type[Evidence]) -> list[Check[Any]]:
        if kind not in self._by_kind:
            self._by_kind[kind] = [c for c in self._checks if issubclass(kind, c.sees)]
        return self._by_kind[kind]

    def own_fault(self, what: str, error: BaseException, step: int = 0) -> None:
        """Something of ours raised: ``WD001``, once, with its traceback."""
        text = "".join(traceback.format_exception(error))
        self._report_fault(what, f"{type(error).__name__}: {error}"[:200], text, step)

    def _report_fault(self, what: str, error: str, text: str, step: int) -> None:
        if what not in self._broken:
            self._broken[what] = text
            seen = OwnFault(what=what, error=error, traceback=text, step=step)
            self._keep(judge(seen, self._checks), seen)

    def _keep(self, found: Judgement, seen: Evidence) -> None:
        own = isinstance(seen, (OwnFault, Closing))
        if not own:
            self._judged |= found.judged
            if self.stepping:
                self._judged_stepping |= found.judged
        for code, reason in found.skipped.items():
            self._skipped.setdefault(code, reason)
        for code, text in found.broken.items():
            self._checks = [c for c in self._checks if c.code != code]
            self._by_kind.clear()
            self._report_fault(f"check {code}", text.strip().rpartition("\n")[2], text, seen.step)
        raised = {alert.key for alert in found.alerts}
        for alert in found.alerts:
            self._raise(replace(alert, ranks=(self._info.rank,)) if self._info.rank else alert)
        for key in [k for k in self._open if k[0] in found.judged and k not in raised and k[1] == seen.scope]:
            if not own and self._info.rank in self._open[key].ranks:
                self._clear(key)

    def _raise(self, alert: Alert) -> None:
        kept = self._not_ignored(alert)
        if kept is None:
            return
        known = self._open.get(kept.key)
        again = known or self._cleared.pop(kept.key, None)
        merged = again.merged(kept) if again is not None else kept
        self._open[kept.key] = merged
        grew = again is not None and (
            merged.severity > again.severity or merged.count in SHOW_AGAIN or set(merged.subjects) > set(again.subjects)
        )
        if known is None or grew:
            self._news[kept.key] = merged
            if known is None and self._on_alert is not None:
                try:
                    self._on_alert(merged)
                except Exception as error:
                    if from_handler(error):
                        raise
                    self._on_alert = None
                    self.own_fault("on_alert", error, alert.step)

    def _not_ignored(self, alert: Alert) -> Alert | None:
        whole = self.settings.silences(alert, "")
        entries = {s: self.settings.silences(alert, s) for s in alert.subjects}
        left = tuple(s for s, entry in entries.items() if entry is None)
        entry = whole or (None if left else next((e for e in entries.values() if e), None))
        used = {e for e in (whole, *entries.values()) if e}
        for name in used:
            gone = alert if entry else replace(alert, subjects=tuple(s for s, e in entries.items() if e == name))
            before = self._ignored.get((name, alert.code))
            merged = gone if before is None else before.alert.merged(gone)
            self._ignored[(name, alert.code)] = Ignored(merged, name, self.settings.ignore[name])
        return None if entry else replace(alert, subjects=left)

    def _clear(self, key: tuple[str, str]) -> None:
        alert = self._open.pop(key)
        self._cleared[key] = alert
        if self._news.pop(key, None) is None:
            self._just_cleared.append(alert)

    # -- alerts out

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts of the run, cleared ones included, without symptoms that a root cause explains; ranked."""
        return self._split()[0]

    def _split(self) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
        every = [*self._open.values(), *self._cleared.values()]
        if not every:
            return (), ()
        causes = [*every, *(i.alert for i in self._ignored.values())]
        standing, explained = explain(every, self._implied_by, causes)
        return tuple(ranked(standing, self._implied_by)), tuple(ranked(explained, self._implied_by))

    @property
    def verdict(self) -> str:
        """``pass``, ``warn``, ``fail``, or ``incomplete`` where something broke or nothing was judged."""
        alerts = self.alerts
        worst = max((a.severity for a in alerts), default=Severity.INFO)
        if worst >= Severity.ERROR or self.settings.policy.reached(alerts):
            return "fail"
        if self._broken or not self._judged_stepping:
            return "incomplete"
        return "warn" if worst >= Severity.WARNING else "pass"

    @property
    def alarmed(self) -> bool:
        """Is there any alert that stands?"""
        return bool(self._open)

    def must_stop(self) -> bool:
        """Does the policy stop the run now?"""
        reached = self.settings.policy.reached
        return self.alarmed and reached(self._open.values()) and reached(self._standing_now())

    def _standing_now(self) -> list[Alert]:
        return [a for a in self.alerts if a.key in self._open]

    def flush(self, step: int) -> None:
        """Tell the sinks what is new."""
        if not (self._news or self._just_cleared or self._readings):
            return
        alerts = self.alerts
        worse = {a.key for a in alerts if a.severity > self._told.get(a.key, a.severity)}
        news = tuple(a for a in alerts if a.key in self._news or a.key in worse)
        self._told.update({a.key: a.severity for a in news})
        counts = {s.name.lower(): sum(a.severity is s for a in alerts) for s in Severity}
        cleared, readings = tuple(self._just_cleared), tuple(self._readings)
        self._news, self._just_cleared, self._readings = {}, [], []
        self._each_sink("write", Batch(step, news, cleared, self.verdict, counts, readings, dict(self._vitals)))

    def close(self, step: int, batches: int, attempts: int, stopped_by: str = "", raised: str = "") -> Summary:
        """The run is over: last judgement, summary to every sink. Only the first call counts.

        A run that raised has not passed: what would have been judged later was not.
        """
        if self.closed:
            return self.summary
        self.closed = True
        if not batches and self.verdict != "fail":
            self._judged_stepping.clear()  # of a step that was never finished
        judged = len(self._judged_stepping)
        self.take(Closing(step=step, judged=judged, batches=batches, attempts=attempts, raised=raised))
        self.flush(step)
        alerts, explained = self._split()
        used = {i.entry for i in self._ignored.values()}
        self.summary = Summary(
            verdict="incomplete" if raised and self.verdict == "pass" else self.verdict,
            alerts=alerts,
            explained=explained,
            ignored=tuple(self._ignored.values()),
            judged=tuple(c.code for c in self._checks if c.code in self._judged),
            skipped={c.code: self._reason(c) for c in self._checks if self._is_skipped(c)},
            broken=dict(self._broken),
            unused_ignores=tuple(e for e in self.settings.ignore if e not in used),
            vitals=dict(self._vitals),
            step=step,
            batches=batches,
            attempts=attempts,
            stopped_by=stopped_by,
            raised=raised,
            unwritten=tuple(self._unwritten),
        )
        self._each_sink("close", self.summary)
        self._sinks.clear()  # nothing is told after the summary
        return self.summary

    def _is_skipped(self, check: Check[Any]) -> bool:
        return check.code not in self._judged and not check.code.startswith("WD0")

    def _reason(self, check: Check[Any]) -> str:
        unseen = (u.reason for u in self._unseen if any(check.code.startswith(c) for c in u.codes))
        return self._skipped.get(check.code) or next(unseen, "nothing of the kind was seen")

    def _each_sink(self, method: str, argument: Any) -> None:
        for sink in tuple(self._sinks):
            try:
                getattr(sink, method)(argument)
            except Exception as error:
                if from_handler(error):
                    raise
                self._sinks.remove(sink)
                name = type(sink).__name__
                self._unwritten.append(name)
                if isinstance(argument, Summary):
                    argument = self.summary = replace(argument, unwritten=tuple(self._unwritten))
                self._say(f"{name} cannot write ({type(error).__name__}: {error}); alerts stay in memory")

    def _say(self, text: str) -> None:
        with suppress(Exception):  # there may be no screen
            self._info.echo(f"watchdog: {text}")
