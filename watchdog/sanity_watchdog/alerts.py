"""What the watchdog says: severities, alerts, and the one function that turns an alert into text."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool | None
"""Evidence is plain data, so that tools need not parse prose."""

SUBJECTS_SHOWN = 6
RANKS_SHOWN = 4
WIDTH = 100
_IN_BRACKETS = re.compile(r"\([^()]*\)")


class Severity(IntEnum):
    """How bad an alert is; the numbers are those of :mod:`logging`."""

    INFO = 20
    WARNING = 30
    ERROR = 40

    @classmethod
    def parse(cls, text: "str | Severity") -> "Severity":
        """Severity by its name, in any case.

        Raises:
            ValueError: for any other name; the message lists the valid ones.
        """
        if isinstance(text, cls):
            return text
        try:
            return cls[str(text).upper()]
        except KeyError:
            valid = ", ".join(s.name.lower() for s in cls)
            raise ValueError(f"unknown severity {text!r}; valid are {valid}") from None


@dataclass(frozen=True, eq=False)
class Alert:
    """One thing that is wrong with a run. A value: comparable (NaN equals NaN), hashable, picklable.

    Attributes:
        code: the check's permanent code, such as ``WD301``.
        name: the check's name, such as ``zeroed-parameter``.
        severity: how bad it is.
        message: one line with the measured number and the limit that it broke.
        step: optimizer step at which it was first seen, on the x axis of the user's own curves.
        hint: the fix that the evidence supports, one imperative line.
        subjects: parameters, modules or loss calls meant, worst first.
        where: the user's ``file:line`` when known.
        evidence: the numbers behind the message, as sorted-by-importance pairs.
        epoch: epoch of ``step``.
        stage: ``start`` (before the first batch), ``train`` or ``validation``.
        ranks: processes that saw it, the first one first.
        last_step: step at which it was last seen.
        count: how often it was seen.
    """

    code: str
    name: str
    severity: Severity
    message: str
    step: int = 0
    hint: str = ""
    subjects: tuple[str, ...] = ()
    where: str = ""
    evidence: tuple[tuple[str, Value], ...] = ()
    epoch: int = 0
    stage: str = "train"
    ranks: tuple[int, ...] = (0,)
    last_step: int = -1
    count: int = 1

    def __post_init__(self) -> None:
        if self.last_step < self.step:
            object.__setattr__(self, "last_step", self.step)

    @property
    def key(self) -> tuple[str, str]:
        """Alerts with one key are the same condition seen again."""
        return self.code, self.where or self.stage

    def _identity(self) -> tuple[Any, ...]:
        evidence = tuple((k, _comparable(v)) for k, v in self.evidence)
        return (*((getattr(self, f)) for f in self.__dataclass_fields__ if f != "evidence"), evidence)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alert) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def merged(self, later: "Alert") -> "Alert":
        """This alert after its condition was seen again; the first message stays unless the later one is worse."""
        head = later if later.severity > self.severity else self
        first, second = (later, self) if later.step < self.step else (self, later)
        return replace(
            head,
            step=min(self.step, later.step),
            epoch=min(self.epoch, later.epoch),
            last_step=max(self.last_step, later.last_step),
            count=self.count + later.count,
            subjects=tuple(dict.fromkeys((*self.subjects, *later.subjects))),
            ranks=tuple(dict.fromkeys((*first.ranks, *second.ranks))),
        )

    def __str__(self) -> str:
        return render(self)


def _comparable(value: Value) -> Value:
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def pairs(evidence: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Evidence as an alert holds it."""
    return tuple(evidence.items())


def number(value: Value) -> str:
    """A value as people read it: four significant digits, integers whole."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}"


def counted(number: int, noun: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def measured(evidence: Iterable[tuple[str, Value]]) -> str:
    """Evidence in one line; texts of several words are quoted: ``error="no such file" shape=(32, 10) step=3``."""
    return " ".join(f"{key}={_delimited(value)}" for key, value in evidence)


def _delimited(value: Value) -> str:
    several = isinstance(value, str) and " " in value and not _IN_BRACKETS.fullmatch(value)
    return json.dumps(value, ensure_ascii=False) if several else number(value)


def printable(text: str, limit: int = 160) -> str:
    """Text from the user's program, safe to print: one line, no control characters, bounded."""
    clean = "".join(c if c.isprintable() else "\\" + f"x{ord(c):02x}" if ord(c) < 256 else "?" for c in text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def named(subjects: Iterable[str], shown: int = SUBJECTS_SHOWN) -> str:
    """A list of subjects, cut after the first few."""
    names = [printable(s, 80) for s in subjects]
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more:,} more" if more > 0 else "")


def several(ranks: Sequence[int]) -> str:
    """Ranks as people read them, cut after the first few."""
    more = len(ranks) - RANKS_SHOWN
    return ", ".join(map(str, ranks[:RANKS_SHOWN])) + (f" and {more:,} more" if more > 0 else "")


def place(alert: Alert) -> str:
    """When and where, as every report prints it."""
    parts = [f"step {alert.step}"]
    if alert.last_step > alert.step:
        parts[0] += f"–{alert.last_step} ({alert.count}×)"
    if alert.stage != "train":
        parts.append(alert.stage)
    if alert.ranks != (0,):
        parts.append("rank " + several(alert.ranks))
    return "  ".join(parts)


def silencer(alert: Alert) -> str:
    """The line that silences exactly this alert."""
    target = alert.code + (f":{alert.subjects[0]}" if len(alert.subjects) == 1 else "")
    return f"SanityWatchdog(ignore=[{target!r}])".replace("'", '"')


def render(alert: Alert) -> str:
    """The alert as text: what and where, what was measured, the fix, how to silence it, where to read on."""
    head = f"{alert.code} {alert.name}  {alert.severity.name}  {place(alert)}"
    lines = [head + (f"  {named(alert.subjects)}" if alert.subjects else ""), f"  {printable(alert.message, 240)}"]
    if alert.where:
        lines.append(f"  at {printable(alert.where)}")
    if alert.evidence:
        lines.append("  " + printable(measured(alert.evidence), 400))
    if alert.hint:
        lines.append(f"  fix: {printable(alert.hint, 400)}")
    lines.append(f"  silence: {printable(silencer(alert))}   explain: sanity-watchdog explain {alert.code}")
    return "\n".join(lines)
