"""The record format: what the watchdog writes and its reports read back. Needs neither torch nor TensorBoard.

A record is one JSON object on one line, in pure ASCII. Each has ``v`` (the version of the format), ``type`` and
``time`` (seconds since 1970). The types, in the order in which a run writes them:

``run``      a fit begins: ``run`` holds its directory, ranks, settings and versions.
``alert``    ``alert``: a new alert, or one whose severity or count has changed; the last one of its key holds.
``cleared``  ``alert``: its condition is gone.
``scalars``  ``step`` and ``values``: points of curves.
``state``    ``step``, ``verdict`` and ``vitals`` of a fit that goes on; in TensorBoard only, for its tab.
``summary``  the fit is over: the fields of :class:`~sanity_watchdog.summary.Summary`.

The same objects travel in ``watchdog.jsonl`` and, as a JSON list per step, in TensorBoard's event files. NaN and the
infinities, which JSON lacks, are ``{"$f": "nan"}``, ``{"$f": "inf"}`` and ``{"$f": "-inf"}``. Readers ignore fields
that they do not know.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from .alerts import Alert, Severity
from .summary import VERDICTS, Ignored, RunInfo, Summary

VERSION = 1
Record: TypeAlias = dict[str, Any]
_NON_FINITE = "$f"


def _plain(value: Any) -> Any:
    """``value`` in the types that JSON has."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_NON_FINITE: str(float(value))}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, frozenset | set):
        return [_plain(v) for v in sorted(value, key=str)]
    if isinstance(value, Iterable):
        return [_plain(v) for v in value]
    return str(value)


def _revive(pairs: dict[str, Any]) -> Any:
    if pairs.keys() == {_NON_FINITE} and pairs[_NON_FINITE] in ("nan", "inf", "-inf"):
        return float(pairs[_NON_FINITE])
    return pairs


def encode(value: Any) -> str:
    """One record, or a list of them, as one line of ASCII without its end."""
    return json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)


def decode(text: str | bytes) -> Any:
    """What :func:`encode` was given.

    Raises:
        ValueError: if ``text`` is not JSON or not UTF-8.
    """
    try:
        return json.loads(text, object_hook=_revive)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _record(kind: str, **content: Any) -> Record:
    return {"v": VERSION, "type": kind, "time": time.time(), **content}


def run_record(info: RunInfo) -> Record:
    """A fit begins."""
    fields = ("directory", "rank", "world", "versions", "settings", "started")
    return _record("run", run={name: getattr(info, name) for name in fields})


def alert_record(alert: Alert) -> Record:
    """An alert is new, or worse, or has been seen again."""
    return _record("alert", alert=alert_to_dict(alert))


def cleared_record(alert: Alert) -> Record:
    """The condition of ``alert`` is gone."""
    return _record("cleared", alert=alert_to_dict(alert))


def scalars_record(step: int, values: Mapping[str, float]) -> Record:
    """Points of curves at one step."""
    return _record("scalars", step=step, values=dict(values))


def state_record(step: int, verdict: str, vitals: Mapping[str, str]) -> Record:
    """How a fit that goes on stands."""
    return _record("state", step=step, verdict=verdict, vitals=dict(vitals))


def summary_record(summary: Summary) -> Record:
    """A fit is over."""
    fields = {name: getattr(summary, name) for name in summary.__dataclass_fields__}
    return _record(
        "summary",
        **fields
        | {
            "alerts": [alert_to_dict(a) for a in summary.alerts],
            "explained": [alert_to_dict(a) for a in summary.explained],
            "ignored": [
                {"alert": alert_to_dict(i.alert), "entry": i.entry, "reason": i.reason} for i in summary.ignored
            ],
        },
    )


def summary_from_record(record: Mapping[str, Any]) -> Summary:
    """The summary that :func:`summary_record` was given.

    Raises:
        ValueError: if a field is missing or of the wrong kind.
    """
    try:
        verdict = record["verdict"]
        if verdict not in VERDICTS:
            raise ValueError(f"unknown verdict {verdict!r}")
        return Summary(
            verdict=verdict,
            alerts=tuple(alert_from_dict(a) for a in record.get("alerts", ())),
            explained=tuple(alert_from_dict(a) for a in record.get("explained", ())),
            ignored=tuple(
                Ignored(alert_from_dict(i["alert"]), str(i["entry"]), str(i["reason"]))
                for i in record.get("ignored", ())
            ),
            judged=tuple(map(str, record.get("judged", ()))),
            skipped=_texts(record.get("skipped", {})),
            broken=_texts(record.get("broken", {})),
            unused_ignores=tuple(map(str, record.get("unused_ignores", ()))),
            vitals=_texts(record.get("vitals", {})),
            step=int(record.get("step", 0)),
            batches=int(record.get("batches", 0)),
            attempts=int(record.get("attempts", 0)),
            stopped_by=str(record.get("stopped_by", "")),
            raised=str(record.get("raised", "")),
            unwritten=tuple(map(str, record.get("unwritten", ()))),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a summary: {type(error).__name__}: {error}") from None


def _texts(data: Mapping[str, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in data.items()}


def alert_to_dict(alert: Alert) -> dict[str, Any]:
    """An alert as plain data, its severity by name, its evidence as one object in its own order."""
    fields: dict[str, Any] = {name: getattr(alert, name) for name in alert.__dataclass_fields__}
    return fields | {"severity": alert.severity.name.lower(), "evidence": dict(alert.evidence)}


def alert_from_dict(data: Mapping[str, Any]) -> Alert:
    """The alert that :func:`alert_to_dict` was given.

    Raises:
        ValueError: if a field is missing or of the wrong kind.
    """
    try:
        known = {k: v for k, v in data.items() if k in Alert.__dataclass_fields__}
        known["severity"] = Severity.parse(known["severity"])
        known["evidence"] = tuple(dict(known.get("evidence", {})).items())
        for name in ("subjects", "ranks"):
            known[name] = tuple(known.get(name, ()))
        for name, kind in {"code": str, "name": str, "message": str, "hint": str, "step": int, "count": int}.items():
            if not isinstance(known.get(name, kind()), kind):
                raise TypeError(f"{name} is not {kind.__name__}")
        return Alert(**known)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an alert: {type(error).__name__}: {error}") from None


@dataclass
class Lines:
    """What a file of records holds.

    Attributes:
        records: the readable records, in order.
        problems: what could not be read, one line each, for people.
        torn: does the file end in the middle of a record, as a killed process leaves it?
    """

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    torn: bool = False


def read(path: Path) -> Lines:
    """Read a file of records. Lines that are not records are reported and passed over.

    Raises:
        OSError: if the file cannot be opened or read.
    """
    found = Lines()
    bad: list[int] = []
    newer = 0
    for number, line in _numbered(path):
        whole = line.endswith(b"\n")
        try:
            record = decode(line)
            if not isinstance(record, dict) or not isinstance(record.get("type"), str):
                raise ValueError("not a record")
            if not isinstance(version := record.get("v"), int):
                raise ValueError("not a record")
        except ValueError:
            if whole:
                bad.append(number)
            else:
                found.torn = True
            continue
        if version > VERSION:
            newer = max(newer, version)
        else:
            found.records.append(record)
    if bad:
        shown = ", ".join(map(str, bad[:3])) + (", …" if len(bad) > 3 else "")
        plural = "s" if len(bad) > 1 else ""
        found.problems.append(f"{len(bad)} unreadable line{plural} (line {shown})")
    if newer:
        found.problems.append(f"written in format {newer}; this version reads up to format {VERSION}")
    return found


def _numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line
