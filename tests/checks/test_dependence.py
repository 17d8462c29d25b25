import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.dependence import input_ignored, misweighted_positions, mixed_samples, sees_the_future
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.dependence import Dependence, PositionWeights, Suspect

SEPARATE = Dependence(
    function="cross_entropy",
    where="train.py:20",
    samples=32,
    scored=32,
    shape=(32, 10),
    connected=True,
    sharing=0.0,
    influence=0.0,
)
MIXED = replace(SEPARATE, sharing=1.0, influence=0.3)
MOVED = Suspect("samples moved", "reshape", where="model.py:5")
RESHAPE = Suspect("reshaped", "view", where="model.py:9")
RECURRENCE = Suspect("both ways", "lstm", "net.cell", "model.py:7")
CONVOLUTION = Suspect("both sides", "conv1d", "net.mix", "model.py:8")
CAUSAL = replace(SEPARATE, shape=(768, 64), later=0.0, position=11, length=24)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (mixed_samples, MIXED),
    (mixed_samples, replace(MIXED, sharing=0.5, influence=2e-4)),
    (mixed_samples, replace(SEPARATE, sequential="lstm", reason="hooks on the graph")),
    (sees_the_future, replace(CAUSAL, later=0.7)),
    (sees_the_future, replace(CAUSAL, later=math.inf)),
    (sees_the_future, replace(CAUSAL, later=9.1, position=2, length=6, before=23)),
    (sees_the_future, replace(CAUSAL, later=0.4, suspects=(CONVOLUTION, RECURRENCE))),
    (sees_the_future, replace(CAUSAL, later=0.4, suspects=(CONVOLUTION,))),
    (sees_the_future, replace(CAUSAL, later=0.9, suspects=(RECURRENCE, RESHAPE))),
    (mixed_samples, replace(MIXED, suspects=(RECURRENCE, RESHAPE))),
    (mixed_samples, replace(SEPARATE, own=16, others=1, astray=4, sharing=1 / 31)),
    (mixed_samples, replace(SEPARATE, own=16, others=5, astray=4, sharing=5 / 31, suspects=(MOVED,))),
    (mixed_samples, replace(SEPARATE, own=0, others=6, sharing=6 / 31, influence=0.9, suspects=(MOVED,))),
    (mixed_samples, replace(SEPARATE, own=16, others=1, astray=0, sharing=1 / 31, single=True)),
    (input_ignored, replace(SEPARATE, connected=False)),
    (input_ignored, replace(SEPARATE, inverted="model.py:12", reason="hooks on the graph")),
    (input_ignored, replace(SEPARATE, lone="model.py:14")),
    (mixed_samples, replace(SEPARATE, placed="model.py:16")),
    (mixed_samples, replace(SEPARATE, torn="model.py:16")),
    (misweighted_positions, PositionWeights(across="model.py:18")),
    (misweighted_positions, PositionWeights(masked="model.py:20")),
    (misweighted_positions, PositionWeights(unmasked="model.py:22", padding=0.36)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (mixed_samples, SEPARATE),
    (mixed_samples, replace(MIXED, sharing=1 / 31)),
    (mixed_samples, replace(MIXED, influence=1e-6)),
    (mixed_samples, replace(MIXED, scored=16, sharing=16 / 31)),
    (mixed_samples, replace(SEPARATE, own=16, others=3, sharing=3 / 31, influence=0.9)),
    (mixed_samples, replace(SEPARATE, own=16, others=1, sharing=1 / 31, influence=0.9, suspects=(MOVED,))),
    (mixed_samples, replace(SEPARATE, samples=3, own=1, others=2, astray=0)),
    (mixed_samples, replace(SEPARATE, own=16, others=5, astray=4, mixing_reason="a graph")),
    (mixed_samples, replace(MIXED, samples=3)),
    (mixed_samples, replace(MIXED, mixing_reason="BatchNorm mixes samples on purpose")),
    (sees_the_future, CAUSAL),
    (sees_the_future, replace(CAUSAL, later=1e-6)),
    (sees_the_future, SEPARATE),
    (input_ignored, SEPARATE),
    (misweighted_positions, PositionWeights()),
]


@pytest.mark.parametrize("check", [mixed_samples, sees_the_future, input_ignored])
def test_what_could_not_be_asked_is_skipped_with_its_reason(check: Check[Any]) -> None:
    (found,) = check(Dependence(reason="compiled step"))
    assert isinstance(found, Skip)
    assert found.reason == "compiled step"


def test_a_reason_not_to_judge_mixing_leaves_the_future_judged() -> None:
    seen = replace(CAUSAL, later=0.7, mixing_reason="BatchNorm mixes samples on purpose")
    assert isinstance(next(iter(mixed_samples(seen))), Skip)
    assert not isinstance(next(iter(sees_the_future(seen))), Skip)
