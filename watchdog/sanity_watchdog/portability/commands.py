"""The commands ``sanity-watchdog portability`` and ``sanity-watchdog precision``."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..alerts import Severity, render
from ..records import alert_to_dict
from ..settings import TARGETS
from . import precision as table
from .placement import PlacementReport, check_placement
from .trial import CannotTryError, Trial, made_by, trial

FINE, FOUND, UNUSABLE = 0, 1, 2


def main(argv: Sequence[str]) -> int:
    """Run one of the two commands; the result is the exit status."""
    command, *rest = argv
    return precision_command(rest) if command == "precision" else portability_command(rest)


def portability_command(argv: Sequence[str]) -> int:
    """Judge a model for other accelerators. 0: nothing at WARNING or above, 1: something, 2: it could not be tried."""
    parser = argparse.ArgumentParser(
        "sanity-watchdog portability",
        description="Train a model for one step on the CPU and tell what other accelerators lack for it. Exit status: "
        "0 nothing at warning or above, 1 something, 2 it could not be tried.",
    )
    parser.add_argument("factory", metavar="MODULE:FACTORY", help="returns a LightningModule and a batch or loader")
    parser.add_argument("--targets", nargs="+", required=True, metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument(
        "--torch", metavar="VERSION", default="", help="judge MPS for this version of torch; default: the installed one"
    )
    parser.add_argument("--precision", help="precision that is asked of the Trainer; default: Lightning's")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument(
        "--placement", action="store_true", help="also run a step on a device that exists in name only (torch >= 2.10)"
    )
    options = parser.parse_args(list(argv))
    try:
        unknown = [t for t in options.targets if t not in TARGETS]
        if unknown:
            raise CannotTryError(f"unknown target {unknown[0]!r}; valid are {', '.join(TARGETS)}")
        module, train, validation = made_by(options.factory)
        found = trial(module, train, validation, options.targets, options.precision, options.torch)
    except (CannotTryError, ValueError) as error:
        print(f"sanity-watchdog: {error}", file=sys.stderr)
        return UNUSABLE
    placed = check_placement(options.factory) if options.placement else None
    show = _json if options.format == "json" else _text
    sys.stdout.write(show(found, options.targets, placed))
    if found.error:
        print(f"sanity-watchdog: the trial ended with {found.error}", file=sys.stderr)
        return UNUSABLE
    fault = placed is not None and placed.status == "fault"
    return FOUND if fault or any(a.severity >= Severity.WARNING for a in found.alerts) else FINE


def _text(found: Trial, targets: Sequence[str], placed: PlacementReport | None) -> str:
    import torch

    judged, skipped = sorted(found.summary.judged), dict(found.summary.skipped)
    lines = [f"{render(alert)}\n" for alert in found.alerts]
    alarms = sum(a.severity >= Severity.WARNING for a in found.alerts)
    verdict = f"{alarms} to look at" if alarms else "nothing to look at"
    lines.append(
        f"portability to {', '.join(targets)}: {verdict}, run by torch {torch.__version__}; judged {len(judged)}"
    )
    lines += [f"not judged: {code} ({reason})" for code, reason in skipped.items()]
    lines += [f"placement: {placed}"] if placed is not None else []
    return "\n".join(lines) + "\n"


def _json(found: Trial, targets: Sequence[str], placed: PlacementReport | None) -> str:
    import torch

    data: dict[str, Any] = {
        "targets": list(targets),
        "torch": torch.__version__,
        "alerts": [alert_to_dict(a) for a in found.alerts],
        "judged": sorted(found.summary.judged),
        "skipped": dict(found.summary.skipped),
        "error": found.error,
        **({"placement": asdict(placed)} if placed is not None else {}),
    }
    return json.dumps(data, indent=2) + "\n"


def precision_command(argv: Sequence[str]) -> int:
    """Print what each accelerator makes of each precision. 0: printed, 2: bad arguments."""
    parser = argparse.ArgumentParser(
        "sanity-watchdog precision", description="What each accelerator makes of each of Lightning's precisions."
    )
    parser.add_argument("--targets", nargs="+", default=list(table.ACCELERATORS), choices=table.ACCELERATORS)
    parser.add_argument("--torch", metavar="VERSION", help="judge for this version; default: the installed one")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    options = parser.parse_args(list(argv))
    version = options.torch or _installed()
    if table.release(version) == (0, 0):
        print(f"sanity-watchdog: {version!r} is no version of torch", file=sys.stderr)
        return UNUSABLE
    rows = table.rows(version, options.targets)
    if options.format == "json":
        data = {"torch": version, "rows": [{k: v for k, v in asdict(r).items() if v} for r in rows]}
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
        return FINE
    cells = [("accelerator", "precision", "outcome", "needs", "why", "source")]
    cells += [(r.target, r.precision, r.outcome, r.needs, r.reason, r.source) for r in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    sys.stdout.write(f"for torch {version}\n" + "\n".join(lines) + "\n")
    return FINE


def _installed() -> str:
    from importlib.metadata import version

    return version("torch")
