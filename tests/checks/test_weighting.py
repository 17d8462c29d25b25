from dataclasses import replace
from typing import Any

from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.weighting import inverted_weights
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import ClassWeights

FREQUENT = ClassWeights(
    function="cross_entropy",
    where="train.py:31",
    weights=(2.6, 1.3, 0.65, 0.26, 0.13),
    counts=(168.0, 85.0, 42.0, 17.0, 8.0),
)
COLUMN = replace(
    FREQUENT, function="binary_cross_entropy_with_logits", weights=(0.06,), counts=(19.0,), others=(301.0,)
)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (inverted_weights, FREQUENT),
    (inverted_weights, replace(FREQUENT, weights=(4.0, 1.0), counts=(240.0, 61.0))),
    (inverted_weights, replace(FREQUENT, weights=(*FREQUENT.weights, 0.0), counts=(*FREQUENT.counts, 0.0))),
    (inverted_weights, COLUMN),
    (inverted_weights, replace(COLUMN, weights=(0.06, 1.0), counts=(19.0, 155.0), others=(301.0, 165.0))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (inverted_weights, replace(FREQUENT, counts=tuple(c / 2 for c in FREQUENT.counts))),
    (inverted_weights, replace(FREQUENT, weights=tuple(1 / w for w in FREQUENT.weights))),
    (inverted_weights, replace(FREQUENT, weights=(1.0,) * 5)),
    (inverted_weights, replace(FREQUENT, weights=(1.0, 1.0, 1.0, 1.0, 0.1))),
    (inverted_weights, replace(FREQUENT, counts=(64.0,) * 5)),
    (inverted_weights, replace(FREQUENT, weights=(1.5, 1.0), counts=(150.0, 50.0))),
    (inverted_weights, replace(FREQUENT, weights=(1.0, 1.0), counts=(320.0, 0.0))),
    (inverted_weights, replace(COLUMN, weights=(15.8,))),
    (inverted_weights, replace(COLUMN, weights=(1.0,))),
    (inverted_weights, replace(COLUMN, weights=(0.5,), counts=(120.0,), others=(200.0,))),
    (inverted_weights, replace(COLUMN, counts=(2.0,), others=(318.0,))),
]


def test_too_few_labels_are_skipped() -> None:
    (found,) = inverted_weights(replace(COLUMN, others=(100.0,)))
    assert isinstance(found, Skip)
