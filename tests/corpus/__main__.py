"""Run the corpus: ``python -m tests.corpus [--seeds 0,1,2] [--only SUBSTRING] [--json FILE]``."""

import argparse
import dataclasses
import json
import logging
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "watchdog"))
for name in ("CI", "SANITY_WATCHDOG", "SANITY_WATCHDOG_FAIL_ON", "SANITY_WATCHDOG_RECORD"):
    os.environ.pop(name, None)


def main() -> int:
    """Prints a line per run and the totals; 1 where a fault is missed, a healthy run accused, or the watchdog broke."""
    import torch

    from . import CASES
    from .run import Result, Score, run

    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=main.__doc__)
    parser.add_argument("--seeds", default="0", help="seeds, separated by commas")
    parser.add_argument("--only", default="", help="part of a case's name or family; several separated by commas")
    parser.add_argument("--json", type=Path, help="file to write all results to")
    options = parser.parse_args()
    seeds = [int(s) for s in options.seeds.split(",")]
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    wanted = options.only.split(",")
    cases = [c for c in CASES.values() if any(w in c.name or w in c.family for w in wanted)]
    results: list[Result] = []
    for seed in seeds:
        for case in cases:
            result = run(case, seed)
            results.append(result)
            print(line(result), flush=True)
    for seed in seeds:
        print(f"seed {seed}: {Score.of(r for r in results if r.seed == seed)}")
    total = Score.of(results)
    if len(seeds) > 1:
        print(f"all: {total}")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in results], indent=1))
    return int(total.named < total.faulty or total.false_alarms > 0 or total.broken > 0)


def line(result) -> str:  # type: ignore[no-untyped-def]
    """One run in a line; what is wrong with it stands first."""
    case = result.case
    if case.healthy:
        mark = "FALSE ALARM" if result.alarms else "ok"
    else:
        mark = "MISSED" if not result.named else "ok" if result.first_named else "not first"
    notes = [result.broken and "BROKEN", not result.ended_as_declared and f"ended with {result.error or 'nothing'}"]
    notes += [result.strays and not case.healthy and f"strays {' '.join(result.strays)}"]
    detail = "; ".join([str(n) for n in notes if n] + (list(result.messages) if mark != "ok" else []))
    expected = "healthy" if case.healthy else "/".join(case.codes)
    head = f"{mark:11} {result.seed} {case.name:48} {expected:24} {' '.join(result.alarms)}"
    return f"{head}   {result.seconds:.1f}s{'   ' + detail if detail else ''}"


if __name__ == "__main__":
    sys.exit(main())
