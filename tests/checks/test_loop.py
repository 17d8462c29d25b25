import math
from dataclasses import replace
from typing import Any

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.loop import (
    divided_twice,
    growing_graph,
    stalled_step,
    step_without_update,
)
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.loop import DividedLoss, GraphsKept, Progress, Stall

NOTHING = Progress(automatic=True, optimizers=1, batches=64, backwards=0, attempts=64, steps=64)
MANUAL = Progress(automatic=False, optimizers=1, batches=20, backwards=20, attempts=0, steps=0, epochs=1)
SUMMING = replace(MANUAL, summing=True, epochs=7, batches=203, backwards=203, per_epoch=29)
IDLE = replace(MANUAL, optimizers=2, attempts=20, steps=20, idle=(1,), cleared=True, share=0.5)
STOPPED = replace(NOTHING, automatic=False, batches=900, backwards=20, epochs=3, stopped=512)
KEPT = GraphsKept(marked=10, alive=10, span=55, epochs=1)
STALL = Stall(
    seconds=301.0, limit=300.0, median=0.2, place="train.py:30 fetch", stack=("train.py:10 main", "q.py:3 get")
)

DIVIDED = DividedLoss(accumulate=4, share=0.25, where="train.py:31")
NO_OPTIMIZER = Progress(automatic=True, optimizers=0, batches=20, backwards=20, attempts=20, steps=0, ended=True)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (step_without_update, NOTHING),
    (step_without_update, replace(NOTHING, batches=2, ended=True)),
    (step_without_update, replace(NOTHING, batches=16, epochs=1)),
    (step_without_update, MANUAL),
    (step_without_update, SUMMING),
    (step_without_update, replace(SUMMING, epochs=0, batches=512)),
    (step_without_update, replace(SUMMING, epochs=1, batches=20, ended=True)),
    (step_without_update, replace(MANUAL, backwards=0)),
    (step_without_update, replace(MANUAL, epochs=0, batches=512)),
    (step_without_update, replace(MANUAL, batches=16, epochs=0, ended=True)),
    (step_without_update, replace(MANUAL, batches=3, backwards=0, epochs=0, ended=True)),
    (step_without_update, replace(MANUAL, automatic=True)),
    (step_without_update, replace(MANUAL, backwards=0, scaled=True)),
    (step_without_update, replace(MANUAL, moved=True)),
    (step_without_update, IDLE),
    (step_without_update, replace(IDLE, share=0.4)),
    (step_without_update, replace(IDLE, idle=(0, 2), epochs=0, ended=True)),
    (step_without_update, replace(IDLE, attempts=0, steps=40)),
    (step_without_update, STOPPED),
    (step_without_update, replace(STOPPED, stopped=128, stopped_epochs=4)),
    (step_without_update, replace(STOPPED, stopped=128, ended=True)),
    (step_without_update, replace(STOPPED, automatic=True, stopped_epochs=1)),
    (step_without_update, replace(STOPPED, automatic=True, silent=True)),
    (growing_graph, KEPT),
    (growing_graph, replace(KEPT, epochs=0, span=505)),
    (growing_graph, replace(KEPT, epochs=0, ended=True)),
    (stalled_step, STALL),
    (divided_twice, DIVIDED),
    (divided_twice, replace(DIVIDED, scales=False)),
    (divided_twice, replace(DIVIDED, calls=2, classifies=False)),
    (divided_twice, replace(DIVIDED, share=0.31, scale=0.25, weight=1.1, classifies=False)),
    (divided_twice, replace(DIVIDED, share=0.31, scale=1.0, weight=0.3, each=True, calls=2, classifies=False)),
    (step_without_update, NO_OPTIMIZER),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (step_without_update, replace(NOTHING, batches=63)),
    (step_without_update, replace(NOTHING, batches=15, epochs=1)),
    (step_without_update, replace(SUMMING, epochs=3)),
    (step_without_update, replace(SUMMING, epochs=20, batches=127)),
    (step_without_update, replace(NOTHING, backwards=1)),
    (step_without_update, replace(NOTHING, backwards=8, attempts=0, steps=0)),
    (step_without_update, replace(MANUAL, epochs=0)),
    (step_without_update, replace(MANUAL, attempts=1, steps=1)),
    (step_without_update, replace(MANUAL, steps=1)),
    (step_without_update, replace(MANUAL, automatic=True, epochs=0)),
    (step_without_update, replace(MANUAL, batches=4, epochs=1, ended=True)),
    (step_without_update, replace(NOTHING, batches=1, ended=True)),
    (step_without_update, replace(MANUAL, optimizers=0)),
    (step_without_update, replace(NO_OPTIMIZER, ended=False)),
    (step_without_update, replace(NO_OPTIMIZER, moved=True)),
    (step_without_update, replace(NO_OPTIMIZER, backwards=0)),
    (step_without_update, replace(NO_OPTIMIZER, batches=1)),
    (step_without_update, replace(IDLE, idle=())),
    (step_without_update, replace(IDLE, epochs=0)),
    (step_without_update, replace(IDLE, attempts=15, steps=15)),
    (step_without_update, replace(STOPPED, stopped=511, stopped_epochs=3)),
    (step_without_update, replace(STOPPED, stopped=127, stopped_epochs=9, ended=True)),
    (step_without_update, replace(STOPPED, automatic=True)),
    (step_without_update, replace(STOPPED, automatic=True, silent=True, stopped=128, ended=True)),
    (growing_graph, replace(KEPT, alive=9)),
    (growing_graph, replace(KEPT, marked=7, alive=7)),
    (growing_graph, replace(KEPT, epochs=0, span=55)),
    (stalled_step, replace(STALL, seconds=299.0)),
    (divided_twice, replace(DIVIDED, share=1.0)),
    (divided_twice, replace(DIVIDED, accumulate=2, share=0.31, each=True)),
    (divided_twice, replace(DIVIDED, share=0.31, scale=0.25, weight=4.0, each=True)),
    (divided_twice, replace(DIVIDED, share=0.26)),
    (divided_twice, replace(DIVIDED, share=math.nan)),
    (divided_twice, replace(DIVIDED, calls=4)),
    (divided_twice, replace(DIVIDED, calls=8)),
    (divided_twice, replace(DIVIDED, accumulate=2, share=0.5, calls=3)),
    (divided_twice, replace(DIVIDED, share=0.31, scale=0.25, weight=4.0)),
    (divided_twice, replace(DIVIDED, share=0.31, scale=0.2, weight=1.1)),
    (divided_twice, replace(DIVIDED, accumulate=2, share=0.31, scale=0.5, weight=1.1)),
    (divided_twice, replace(DIVIDED, accumulate=2, share=0.5, classifies=False)),
]


def test_a_run_without_optimizers_is_skipped() -> None:
    (found,) = step_without_update(replace(MANUAL, optimizers=0))
    assert isinstance(found, Skip)


def test_a_stall_names_the_frame() -> None:
    (found,) = stalled_step(STALL)
    assert isinstance(found, Alert)
    assert found.subjects == ("train.py:30 fetch",)
    assert dict(found.evidence)["stack"] == "q.py:3 get < train.py:10 main"
