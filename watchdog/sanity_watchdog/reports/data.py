"""Runs as one JSON document, for other tools. NaN and infinities are spelled as in the record."""

import json

from ..records import alert_to_dict, encode, summary_record
from .load import Loaded
from .run import WatchedRun

FORMAT = 1


def report(loaded: Loaded) -> str:
    """``format``, ``runs`` (name, verdict, finished, info, problems and the summary's fields) and ``problems``."""
    whole = {"format": FORMAT, "runs": [_run(r) for r in loaded.runs], "problems": loaded.problems}
    return json.dumps(json.loads(encode(whole)), indent=2) + "\n"


def _run(run: WatchedRun) -> dict[str, object]:
    summary = {k: v for k, v in summary_record(run.summary).items() if k not in ("v", "type", "time")}
    extra = {"name": run.name, "finished": run.finished, "info": run.info, "problems": run.problems}
    return {**extra, **summary, "alerts": [alert_to_dict(a) for a in run.summary.alerts]}
