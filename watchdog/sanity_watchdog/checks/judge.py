"""Runs the checks that one piece of evidence concerns."""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..alerts import Alert
from ..evidence.base import Evidence
from ..handlers import from_handler
from .check import Check


@dataclass(frozen=True)
class Judgement:
    """What the checks made of one piece of evidence.

    Attributes:
        alerts: what they found, in order of the checks.
        judged: codes that came to a verdict, alert or quiet.
        skipped: code to the reason why it could not judge.
        broken: code to the traceback of a check that raised.
    """

    alerts: tuple[Alert, ...] = ()
    judged: frozenset[str] = frozenset()
    skipped: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


def judge(
    seen: Evidence,
    checks: Iterable[Check[Any]],
    options: Callable[[Check[Any]], Mapping[str, Any]] = lambda _: {},
) -> Judgement:
    """Judge ``seen`` by those of ``checks`` that ask for its kind. A check that raises is reported, never passed on."""
    alerts: list[Alert] = []
    judged: set[str] = set()
    skipped: dict[str, str] = {}
    broken: dict[str, str] = {}
    for check in checks:
        if not isinstance(seen, check.sees):
            continue
        try:
            findings = tuple(check(seen, **options(check)))
        except Exception as error:
            if from_handler(error):
                raise
            broken[check.code] = traceback.format_exc()
            continue
        found = [f for f in findings if isinstance(f, Alert)]
        reasons = [f.reason for f in findings if not isinstance(f, Alert)]
        alerts += found
        if found or not reasons:
            judged.add(check.code)
        else:
            skipped[check.code] = reasons[0]
    return Judgement(tuple(alerts), frozenset(judged), skipped, broken)
