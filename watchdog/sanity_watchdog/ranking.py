"""Which alert is the root cause, and which a symptom that it explains."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .alerts import Alert, Severity

START = "start"
"""Stage of an alert about what was there before the first batch."""
ACROSS = {"WD211": "WD142"}
"""What one rank's loss does to the averaged gradients of the others within the same step, however finite theirs are."""

OF_OTHERS = {"WD214": "WD505", "WD213": "WD108"}
"""What layers and losses do to others in training: before a layer that drops everything no unit gets a gradient, and a
loss without a floor drives the gradients of all weights up."""
ENTERING = "WD123"
"""About data where they enter the first weights: all layers and losses lie behind."""

DATA = re.compile(r"batch($|[\[.])")
"""A place in the batch, such as ``batch[0]`` or ``batch.image``."""


def explain(
    alerts: Iterable[Alert], implied_by: Mapping[str, tuple[str, ...]], causes: Iterable[Alert] | None = None
) -> tuple[list[Alert], list[Alert]]:
    """Split ``alerts`` into those that stand and those that another one explains away.

    A cause without subjects explains all of a symptom, one with subjects only the subjects that they share; a symptom
    without subjects is explained by either, and so is one about layers or losses whose cause lies in the data, also
    where they enter, or in other layers as ``OF_OTHERS`` has it. What one code suspects without a line is explained
    where the same code is surer and knows the line. A cause is as severe as the worst that it explains. Never
    explained are: anything worse than an INFO by an INFO; what was there before the first batch by what happened in
    a step; what was seen before any weight had changed by what came after the first step; what one rank saw by what
    another one saw no earlier.

    Args:
        alerts: open alerts.
        implied_by: code to the codes of its root causes.
        causes: alerts that may explain; ``alerts`` themselves where None (ignored ones count as causes as well).
    """
    open_alerts = list(alerts)
    by_code: dict[str, list[Alert]] = {}
    for cause in open_alerts if causes is None else causes:
        by_code.setdefault(cause.code, []).append(cause)
    standing: list[Alert] = []
    explained: list[tuple[Alert, list[Alert]]] = []
    for alert in open_alerts:
        left = set(alert.subjects)
        wholly = [c for c in by_code.get(ACROSS.get(alert.code, ""), ()) if _is_from_another_rank(c, alert)]
        wholly += [c for c in by_code.get(alert.code, ()) if _is_surer(c, alert)]
        partly: list[Alert] = []
        for cause in (c for code in implied_by.get(alert.code, ()) for c in by_code.get(code, ())):
            if not _may_explain(cause, alert):
                continue
            if not cause.subjects or not alert.subjects or _reaches_beyond(cause, alert):
                wholly.append(cause)
            elif left & set(cause.subjects):
                partly.append(cause)
                left -= set(cause.subjects)
        if wholly or (alert.subjects and not left):
            explained.append((alert, wholly or partly))
        else:
            standing.append(replace(alert, subjects=tuple(s for s in alert.subjects if s in left)))
    return _as_bad_as(standing, explained), [alert for alert, _ in explained]


def _may_explain(cause: Alert, alert: Alert) -> bool:
    if cause.severity == Severity.INFO and alert.severity > Severity.INFO:
        return False
    if (alert.stage == START and cause.stage != START) or alert.step == 0 < cause.step:
        return False
    return cause.ranks[:1] == alert.ranks[:1] or cause.step < alert.step


def _is_surer(cause: Alert, alert: Alert) -> bool:
    same = cause.subjects == alert.subjects and cause.ranks == alert.ranks and cause.step <= alert.step
    return same and cause.severity > alert.severity and bool(cause.where) and not alert.where


def _reaches_beyond(cause: Alert, alert: Alert) -> bool:
    """Does it explain the symptom whatever the subjects of both?"""
    of_others = OF_OTHERS.get(alert.code) == cause.code and cause.stage == alert.stage and cause.step < alert.step
    enters = cause.code == ENTERING and cause.stage == alert.stage and cause.step <= alert.step
    return of_others or enters or _are_data(cause) > _are_data(alert)


def _is_from_another_rank(cause: Alert, alert: Alert) -> bool:
    return cause.ranks[0] not in alert.ranks and cause.step <= alert.step


def _as_bad_as(standing: list[Alert], explained: list[tuple[Alert, list[Alert]]]) -> list[Alert]:
    """A cause is as severe as the worst that it explains, through any chain of causes."""
    worst: dict[tuple[str, str], Severity] = {}
    for _ in explained:  # a chain is no longer than what is explained
        before = dict(worst)
        for alert, because in explained:
            severity = max(alert.severity, worst.get(alert.key, alert.severity))
            for cause in because:
                worst[cause.key] = max(severity, worst.get(cause.key, cause.severity))
        if worst == before:
            break
    return [replace(a, severity=max(a.severity, worst.get(a.key, a.severity))) for a in standing]


def _are_data(alert: Alert) -> bool:
    """Are all subjects places in the batch?"""
    return bool(alert.subjects) and all(DATA.match(s) for s in alert.subjects)


def ranked(alerts: Iterable[Alert], implied_by: Mapping[str, tuple[str, ...]]) -> list[Alert]:
    """Alerts with the most likely root cause first: severity, then what was there before the first batch, then the
    earliest, then what explains others."""
    causes = {code for several in implied_by.values() for code in several}
    return sorted(alerts, key=lambda a: (-a.severity, a.stage != START, a.step, a.code not in causes, a.code, a.where))
