"""What a user may set, checked before anything runs."""

import fnmatch
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

from .alerts import Alert
from .checks import CHECKS
from .checks.check import Check
from .policy import Policy
from .reports.pages import nearest

TARGETS = ("cpu", "cuda", "mps", "tpu", "xla", "xpu")


def _matches(pattern: str, check: Check[Any]) -> bool:
    return check.code.startswith(pattern) or check.name == pattern


def _known(pattern: str, what: str) -> str:
    """The pattern as checks are called: codes and names are taken in any case."""
    if not isinstance(pattern, str):
        raise TypeError(f"{what} takes codes and names of checks, got {pattern!r}")
    spelt = (pattern.upper(), pattern.lower()) if pattern else ()
    known = next((p for p in spelt if any(_matches(p, c) for c in CHECKS)), "")
    if not known:
        near = nearest([pattern])
        hint = f"did you mean {', '.join(near)}? Valid" if near else "valid"
        raise ValueError(
            f"unknown check {pattern!r} in {what}; {hint} are codes, prefixes of codes and names:"
            " `sanity-watchdog checks` lists them"
        )
    return known


def _silenced(entry: str) -> str:
    """An ``ignore`` entry as checks are called; subjects stay as they are."""
    pattern, colon, subject = entry.partition(":") if isinstance(entry, str) else (entry, "", "")
    return _known(pattern, "ignore") + colon + subject


def _strings(value: str | Iterable[str], what: str, of: str = "codes") -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise TypeError(f"{what} takes a list of {of}, got {value!r}")
    if isinstance(value, str):
        raise TypeError(f"{what} takes a list of {of}, not the string {value!r}: write {what}=[{value!r}]")
    return tuple(value)


@dataclass(frozen=True)
class Settings:
    """The callback's arguments, validated.

    Raises:
        ValueError: for an unknown code, option, severity or target; the message names valid ones.
        TypeError: for a value of the wrong kind.
    """

    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    every_n_steps: int = 101
    targets: tuple[str, ...] = ()
    policy: Policy = field(default_factory=Policy)
    record: str | None = None
    save_batches: bool = False
    num_classes: int | None = None
    expected_loss: float | None = None

    @classmethod
    def make(
        cls,
        *,
        select: Iterable[str] = (),
        ignore: Iterable[str] | Mapping[str, str] = (),
        options: Mapping[str, Mapping[str, Any]] | None = None,
        every_n_steps: int = 101,
        targets: Iterable[str] = (),
        fail_on: str | None = "auto",
        record: str | os.PathLike[str] | None = None,
        save_batches: bool = False,
        num_classes: int | None = None,
        expected_loss: float | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> "Settings":
        """Settings from the callback's arguments and the environment."""
        chosen = tuple(_known(pattern, "select") for pattern in _strings(select, "select"))
        given = ignore if isinstance(ignore, Mapping) else dict.fromkeys(_strings(ignore, "ignore"), "")
        silenced = {_silenced(entry): reason for entry, reason in given.items()}
        both = sorted(set(chosen) & set(silenced))
        if both:
            raise ValueError(f"{', '.join(both)} is both selected and ignored")
        if isinstance(every_n_steps, bool) or not isinstance(every_n_steps, Integral) or every_n_steps < 1:
            raise ValueError(f"every_n_steps must be a whole number of at least 1, got {every_n_steps!r}")
        aims = tuple("tpu" if t == "xla" else t for t in _strings(targets, "targets", "accelerators"))
        for target in aims:
            if target not in TARGETS:
                raise ValueError(f"unknown target {target!r}; valid are {', '.join(TARGETS)}")
        if num_classes is not None and (not isinstance(num_classes, int) or num_classes < 2):
            raise ValueError(f"num_classes must be a whole number of at least 2, got {num_classes!r}")
        if expected_loss is not None and not _is_number(expected_loss):
            raise ValueError(f"expected_loss must be a finite number of nats, got {expected_loss!r}")
        if num_classes is not None and expected_loss is not None:
            raise ValueError("num_classes and expected_loss contradict each other: give one of them")
        if not isinstance(save_batches, bool):
            raise TypeError(f"save_batches must be True or False, got {save_batches!r}")
        if not isinstance(record, (str, bytes, os.PathLike, type(None))):
            raise TypeError(f"record must be a path, got {record!r}")
        where = record if record is not None else environ.get("SANITY_WATCHDOG_RECORD") or None
        return cls(
            select=chosen,
            ignore=silenced,
            options=_options(options or {}),
            every_n_steps=int(every_n_steps),
            targets=aims,
            policy=Policy.resolve(fail_on, environ),
            record=None if where is None else os.fsdecode(where),
            save_batches=save_batches,
            num_classes=num_classes,
            expected_loss=expected_loss,
        )

    def selected(self, check: Check[Any]) -> bool:
        """Is this check to run? The watchdog's own always are; what is ignored runs, too, so that it is counted."""
        own = check.code.startswith("WD0")
        return own or not self.select or any(_matches(s, check) for s in self.select)

    def options_of(self, check: Check[Any]) -> Mapping[str, Any]:
        """Options set for this check."""
        return self.options.get(check.code, {})

    def silences(self, alert: Alert, subject: str) -> str | None:
        """The ``ignore`` entry that silences this alert for one subject (or, for ``""``, as a whole)."""
        for entry in self.ignore:
            pattern, colon, glob = entry.partition(":")
            hit = alert.code.startswith(pattern) or alert.name == pattern
            if hit and (not colon or fnmatch.fnmatchcase(subject or alert.where, glob)):
                return entry
        return None

    def joined(self, other: "Settings", environ: Mapping[str, str] = os.environ) -> "Settings":
        """One watch for several callbacks: selections, targets, what is ignored and options are added up.

        Everything else must agree where both have set it.

        Raises:
            ValueError: names the setting in which they differ.
        """
        default = Settings.make(environ=environ)
        added: dict[str, Any] = {
            "select": () if not (self.select and other.select) else self.select + other.select,
            "targets": tuple(dict.fromkeys(self.targets + other.targets)),
            "ignore": {**self.ignore, **other.ignore},
            "options": {
                code: {**self.options.get(code, {}), **other.options.get(code, {})}
                for code in {**self.options, **other.options}
            },
        }
        for name in (f.name for f in fields(self) if f.name not in added):
            values = [getattr(settings, name) for settings in (self, other)]
            apart = [value for value in values if value != getattr(default, name)]
            if len(apart) == 2 and apart[0] != apart[1]:
                what, words = (name, map(repr, apart)) if name != "policy" else ("fail_on", (p.reason for p in apart))
                raise ValueError(f"two watchdog callbacks in one Trainer disagree on {what}: {' and '.join(words)}")
            added[name] = apart[0] if apart else values[0]
        return replace(self, **added)


def _options(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if not isinstance(options, Mapping):
        raise TypeError(f"options takes a dictionary of checks and their options, got {options!r}")
    for key, values in options.items():
        known = _known(key, "options")
        chosen = [c for c in CHECKS if known in (c.code, c.name)]
        if not chosen:
            raise ValueError(f"options are set for one check: write its code or name, not {key!r}")
        check = chosen[0]
        if not isinstance(values, Mapping):
            raise TypeError(f"options[{key!r}] takes a dictionary of option names and values, got {values!r}")
        for name, value in values.items():
            if name not in check.options:
                valid = ", ".join(check.options) or "none"
                raise ValueError(f"unknown option {name!r} of {check.code} {check.name}; valid are {valid}")
            if isinstance(check.options[name], (int, float)) and not _is_number(value):
                raise TypeError(f"option {name!r} of {check.code} takes a finite number, got {value!r}")
            found.setdefault(check.code, {})[name] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
