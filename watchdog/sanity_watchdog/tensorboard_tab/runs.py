"""Makes runs of the records that TensorBoard has read: a row for the list of runs, and everything about one run."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..alerts import Alert, Severity, silencer
from ..checks import CHECKS
from ..checks.initial_loss import ERRORS, HIGH, NOTE
from ..ranking import ranked
from ..records import alert_from_dict, alert_to_dict, decode, summary_from_record
from ..summary import VERDICTS, Summary

SUBJECTS = 50
"""Subjects per alert that are sent to the page."""
TEXT = 20_000
"""Characters of one text that are sent to the page; a traceback fits."""
FIRST_LOSS = "WD101"
_EXPECTED_NAME = re.compile(r"\((.+?) = ")
_IMPLIED_BY = {c.code: c.implied_by for c in CHECKS}


@dataclass
class Fit:
    """What one fit has written so far. Never raises for what it is given; ``unreadable`` counts what made no sense."""

    info: Mapping[str, Any] = field(default_factory=dict)
    alerts: dict[tuple[str, str], Alert] = field(default_factory=dict)
    cleared: set[tuple[str, str]] = field(default_factory=set)
    first: dict[str, float] = field(default_factory=dict)
    vitals: dict[str, str] = field(default_factory=dict)
    told: str = ""
    summary: Summary | None = None
    step: int = 0
    started: float = math.inf
    updated: float = 0.0
    unreadable: int = 0

    @classmethod
    def of(cls, texts: Iterable[tuple[float, bytes | str]]) -> "Fit":
        """A fit from the times and texts of its lists of records."""
        fit = cls()
        for time, text in texts:
            fit.started, fit.updated = min(fit.started, time), max(fit.updated, time)
            try:
                found = decode(text)
            except ValueError:
                fit.unreadable += 1
                continue
            for record in found if isinstance(found, list) else [found]:
                try:
                    fit._take(record)
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                    fit.unreadable += 1
        return fit

    def _take(self, record: Mapping[str, Any]) -> None:
        kind = record["type"]
        if kind == "run":
            self.info = dict(record["run"])
        elif kind in ("alert", "cleared"):
            alert = _sound(alert_from_dict(record["alert"]))
            self.step = max(self.step, alert.last_step)
            self.alerts[alert.key] = alert
            (self.cleared.add if kind == "cleared" else self.cleared.discard)(alert.key)
        elif kind == "scalars":
            self.step = max(self.step, int(record["step"]))
            self.first.update({str(k): float(v) for k, v in record["values"].items()} | self.first)
        elif kind == "state":
            self.step = max(self.step, int(record["step"]))
            self.told = str(record["verdict"])
            self.vitals = {str(k): str(v) for k, v in record["vitals"].items()}
        elif kind == "summary":
            summary = summary_from_record(record)
            for alert in (*summary.alerts, *summary.explained, *(i.alert for i in summary.ignored)):
                _sound(alert)
            self.summary = summary
            self.vitals = dict(self.summary.vitals)
            self.step = max(self.step, self.summary.step)

    @property
    def standing(self) -> Sequence[Alert]:
        """Alerts, most likely root cause first."""
        return self.summary.alerts if self.summary else ranked(list(self.alerts.values()), _IMPLIED_BY)

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``; ``running`` where nothing is wrong so far."""
        if self.summary is not None:
            return self.summary.verdict
        if self.told in VERDICTS and self.told != "pass":
            return "running" if self.told == "incomplete" else self.told
        worst = max((a.severity for a in self.alerts.values()), default=Severity.INFO)
        return {Severity.ERROR: "fail", Severity.WARNING: "warn"}.get(worst, "running")

    def loss(self) -> dict[str, Any] | None:
        """The first loss, what was expected, and how far from it a check stays quiet (nats)."""
        seen, expected = self.first.get("first_loss"), self.first.get("ln_k")
        if seen is None:
            return None
        error = self.first.get("first_loss_error", 0.0)
        slack = ERRORS * error if math.isfinite(error) else 0.0
        tolerance = self._tolerance()
        name = _EXPECTED_NAME.search(self.vitals.get("loss", ""))
        return {
            "seen": seen,
            "expected": expected,
            "name": name[1] if name else "expected",
            "note": min(NOTE, tolerance) + slack,
            "tolerance": tolerance,
            "slack": slack,
        }

    def _tolerance(self) -> float:
        options = self.info.get("settings", {})
        options = options.get("options", {}) if isinstance(options, Mapping) else {}
        own = options.get(FIRST_LOSS, {}) if isinstance(options, Mapping) else {}
        value = own.get("tolerance", HIGH) if isinstance(own, Mapping) else HIGH
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else HIGH


def _sound(alert: Alert) -> Alert:
    """``alert``; raises TypeError where its parts are not plain data."""
    hash(alert)
    return alert


def row(name: str, fits: Sequence[Fit]) -> dict[str, Any]:
    """A run for the list of runs, as its last fit is."""
    last = fits[-1]
    alerts = last.standing
    found = Counter(a.severity for a in alerts)
    codes: dict[str, dict[str, Any]] = {}
    for a in alerts:
        seen = codes.setdefault(a.code, {"name": a.name, "severity": "info", "places": 0, "step": a.step, "count": 0})
        seen["severity"] = max(Severity.parse(seen["severity"]), a.severity).name.lower()
        seen["step"] = min(seen["step"], a.step)
        seen["places"] += 1
        seen["count"] += a.count
    return {
        "run": name,
        "verdict": last.verdict,
        "over": last.summary is not None,
        "fits": len(fits),
        "earlier": sum(len(f.standing) for f in fits[:-1]),
        "counts": {s.name.lower(): found[s] for s in reversed(Severity)},
        "codes": codes,
        "step": last.step,
        "updated": last.updated,
        "vitals": {k: _cut(v) for k, v in last.vitals.items()},
        "loss": last.loss(),
        "versions": _texts(last.info.get("versions", {})),
        "world": last.info.get("world", 1),
        "unreadable": sum(f.unreadable for f in fits),
    }


def detail(name: str, fits: Sequence[Fit]) -> dict[str, Any]:
    """Everything about one run: the row, its alerts with the last fit's first, and what was and was not looked at."""
    last = fits[-1].summary
    return {
        **row(name, fits),
        "alerts": [d for number in range(len(fits), 0, -1) for d in _alerts(fits[number - 1], number)],
        "batches": last.batches if last else None,
        "attempts": last.attempts if last else None,
        "stopped_by": _cut(last.stopped_by) if last else "",
        "judged": last.judged if last else [],
        "skipped": _texts(last.skipped) if last else {},
        "broken": _texts(last.broken) if last else {},
        "unused_ignores": [_cut(e) for e in last.unused_ignores] if last else [],
        "explained": [_alert(a, len(fits)) for a in last.explained] if last else [],
        "ignored": [
            {**_alert(i.alert, len(fits)), "entry": _cut(i.entry), "reason": _cut(i.reason)} for i in last.ignored
        ]
        if last
        else [],
    }


def _alerts(fit: Fit, number: int) -> Iterator[dict[str, Any]]:
    for alert in fit.standing:
        yield _alert(alert, number, alert.key in fit.cleared)


def _alert(alert: Alert, fit: int, cleared: bool = False) -> dict[str, Any]:
    shown = alert_to_dict(alert)
    return {k: _cut(v) if isinstance(v, str) else v for k, v in shown.items()} | {
        "subjects": [_cut(str(s)) for s in alert.subjects[:SUBJECTS]],
        "subjects_in_all": len(alert.subjects),
        "evidence": [[_cut(str(k)), _cut(v) if isinstance(v, str) else v] for k, v in alert.evidence],
        "silence": _cut(silencer(alert)),
        "fit": fit,
        "cleared": cleared,
    }


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


def _texts(data: Any) -> dict[str, str]:
    return {_cut(str(k)): _cut(str(v)) for k, v in data.items()} if isinstance(data, Mapping) else {}
