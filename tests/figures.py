"""Tables of the README from the results that the benchmarks left in ``tests/benchmarks/*.json``.

``overhead.json`` is what ``python -m tests.benchmarks.overhead --json`` writes; ``corpus.json`` holds name, seed,
alarms and error of each run of ``python -m tests.corpus --json``: ``python -m tests.figures RESULT…`` makes it;
``others.json`` holds figures of other tools, with who measured them and on what.
"""

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "benchmarks"
WORK = {
    "cnn": "CNN, 3 convolutions",
    "gpt": "GPT, 4 layers",
    "deep": "MLP, 100 layers",
    "deep-long": "MLP, 100 layers, after 1,000 steps",
    "mlp": "MLP, 2 layers",
    "mlp-long": "MLP, 2 layers, after 1,000 steps",
    "many": "10,000 parameters",
}
BESIDE = {
    "empty callback": "an empty callback",
    "detect_anomaly": "`detect_anomaly`",
    "torch-audit": "torch-audit, each step",
    "torch-audit/101": "torch-audit, each 101st step",
}
"""Other ways of the same benchmark, by their steady state."""


def _steady(ratio: Any) -> str:
    if not ratio:
        return "–"
    steady = ratio["steady"]
    several = f" [{steady['least']:.2f}–{steady['most']:.2f}]" if ratio["rounds"] > 1 else ""
    return f"{steady['median']:.3f}×{several}"


def _read(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def cost() -> str:
    """Ratios of CPU time, watched to unwatched."""
    found = _read("overhead")
    columns = ["workload", "a step, plain", "steady state", "looks alone", "smoke run of 20 steps", *BESIDE.values()]
    lines = [f"| {' | '.join(columns)} |", f"| {' | '.join(['---'] * len(columns))} |"]
    for work, ratios in found["ratios"].items():
        own, beside = ratios["watchdog"], [_steady(ratios.get(way)) for way in BESIDE]
        smoke = f"{own['smoke']['median']:.2f}× ({own['smoke_extra_seconds']:+.2f} s)" if "smoke" in own else "–"
        looks = f"{1 + own['looks']:.3f}×"
        row = [WORK[work], f"{own['plain_step_ms']:.1f} ms", _steady(own), looks, smoke, *beside]
        lines.append(f"| {' | '.join(row)} |")
    rounds = sorted({ratios["watchdog"].get("rounds", found["rounds"]) for ratios in found["ratios"].values()})
    many = " to ".join(str(n) for n in dict.fromkeys((rounds[0], rounds[-1])))
    where = f"torch {found['torch']}, Lightning {found['lightning']}, one core, medians of {many} rounds"
    return "\n".join([*lines, "", f"Ratios of CPU time ({where})."]) + "\n"


def detection() -> str:
    """Named faults and false alarms on the corpus, by seed."""
    from .corpus.run import Result

    results = [Result(r["name"], r["seed"], tuple(r["alarms"]), error=r["error"]) for r in _read("corpus")]
    lines = [
        "| seed | faulty runs | named | right one first | stray alerts per faulty run | healthy runs | accused |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for seed in sorted({r.seed for r in results}):
        faulty = [r for r in results if r.seed == seed and r.case.codes]
        healthy = [r for r in results if r.seed == seed and not r.case.codes]
        named, first = sum(r.named for r in faulty), sum(r.first_named for r in faulty)
        strays = sum(len(r.strays) for r in faulty) / max(len(faulty), 1)
        accused = sum(bool(r.strays) for r in healthy)
        lines.append(f"| {seed} | {len(faulty)} | {named} | {first} | {strays:.2f} | {len(healthy)} | {accused} |")
    return "\n".join(lines) + "\n"


def others() -> str:
    """Published or measured figures of other tools, none of them on the runs of the tables above."""
    lines = [
        "| tool | faults named | healthy runs accused | cost of a step | measured by, and on |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in _read("others"):
        lines.append("| " + " | ".join(row[key] for key in ("tool", "named", "accused", "cost", "measured")) + " |")
    return "\n".join(lines) + "\n"


def keep(paths: list[str]) -> None:
    """Make ``corpus.json`` from results of ``python -m tests.corpus --json``."""
    runs = [run for path in paths for run in json.loads(Path(path).read_text())]
    rows = [json.dumps({k: run[k] for k in ("name", "seed", "alarms", "error")}) for run in runs]
    (FOLDER / "corpus.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    keep(sys.argv[1:])
