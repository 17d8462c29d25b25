import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.batches import batch_of_one, one_class_batches, repeated_batch, rewritten_data
from sanity_watchdog.checks.data import constant_input, non_finite_input, unscaled_input
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.data import (
    Entry,
    Finiteness,
    FirstInputs,
    LabelOrder,
    LastBatch,
    MadeTargets,
    Repeats,
    StoredData,
)

TABLE = Entry(
    path="batch[0]",
    operation="linear",
    shape=(32, 20),
    low=-3.0,
    high=3.0,
    mean=0.0,
    deviation=1.0,
    zeros=0.0,
    whole=0.0,
    equal_rows=False,
    feature_high=1.3,
    feature_median=1.0,
    feature=4,
    where="train.py:12",
)
IMAGES = replace(
    TABLE,
    operation="conv2d",
    shape=(32, 3, 16, 16),
    feature_high=float("nan"),
    feature_median=float("nan"),
    feature=-1,
)
PIXELS = replace(IMAGES, low=0.0, high=250.0, mean=125.0, deviation=50.0, whole=1.0)
TWICE = replace(IMAGES, low=0.0, high=1 / 255, mean=0.002, deviation=0.001, twice=1.0)
ZEROS = replace(IMAGES, low=0.0, high=0.0, deviation=0.0, zeros=1.0, whole=1.0, equal_rows=True)
FLOORED = replace(IMAGES, low=0.0, high=1.0, mean=0.005, deviation=0.07, zeros=0.995, whole=1.0)
LABEL = replace(ZEROS, operation="embedding", path="batch[1]", shape=(32,))
ONE_HOT = replace(TABLE, low=0.0, high=1.0, zeros=0.9, whole=1.0, equal_rows=True, shape=(32, 10), path="")
SORTED = LabelOrder(path="batch[1]", batches=tuple((16, i // 3, i // 3) for i in range(9)), classes=10)
MIXED = LabelOrder(path="batch[1]", batches=((16, 0, 9),) * 9, classes=10)
MADE = MadeTargets(path="cross_entropy", where="train.py:31", batches=((32, 3.0, 3.0),) * 12)
ONE_FOR_ALL = MadeTargets(path="batch[1]", where="train.py:31", batches=((32, 0.0, 9.0),), repeated=True)
SAME = Repeats(batches=tuple((i, 0, 0) for i in range(6)), variety=300)
GENERATOR = Repeats(generators=("dataset.rng",), workers=2)
LAST = LastBatch(samples=65, size=32, layers=("net.1",))
NAN = Finiteness(batch=6, path="batch[0]", value="NaN", index=(3, 7), loss_finite=False)


def first(*entries: Entry, **kwargs: Any) -> FirstInputs:
    return FirstInputs(entries=entries, **kwargs)


FIRING: list[tuple[Check[Any], Evidence]] = [
    (one_class_batches, SORTED),
    (one_class_batches, replace(SORTED, batches=tuple((16, i // 5, i // 4) for i in range(12)))),
    (one_class_batches, replace(SORTED, batches=((32, 0, 0),) * 16, shuffled=False)),
    (one_class_batches, replace(MIXED, batches=((32, 3, 3),) * 40, shuffled=True, classes=10, per_epoch=40)),
    (one_class_batches, MADE),
    (one_class_batches, ONE_FOR_ALL),
    (non_finite_input, NAN),
    (non_finite_input, replace(NAN, index=())),
    (non_finite_input, replace(NAN, value="inf", index=(3, 0, 1))),
    (non_finite_input, replace(NAN, loss_finite=True)),
    (constant_input, first(ZEROS)),
    (constant_input, first(FLOORED)),
    (constant_input, first(LABEL)),
    (constant_input, first(ONE_HOT)),
    (constant_input, first(replace(TABLE, equal_rows=True), generates=True)),
    (constant_input, first(ZEROS, LABEL, drawn=True)),
    (constant_input, first(replace(LABEL, shape=(32, 9)), drawn=True)),
    (constant_input, first(replace(TABLE, equal_rows=True))),
    (constant_input, first(ZEROS, replace(TABLE, equal_rows=True, path=""))),
    (unscaled_input, first(PIXELS)),
    (unscaled_input, first(replace(TABLE, mean=0.0, deviation=300.0, low=-900.0, high=900.0))),
    (unscaled_input, first(replace(TABLE, feature_high=5e4, feature_median=2.0, deviation=1e4))),
    (unscaled_input, first(replace(PIXELS, normalised=True, path=""))),
    (unscaled_input, first(TWICE)),
    (repeated_batch, SAME),
    (repeated_batch, replace(SAME, batches=tuple((i, 0, i // 4) for i in range(16)), workers=4, streaming=True)),
    (repeated_batch, GENERATOR),
    (repeated_batch, Repeats(reseeded="train.py:40", alike=6)),
    (repeated_batch, Repeats(own="train.py:40", alike=6)),
    (repeated_batch, Repeats(loading=True, alike=7)),
    (batch_of_one, LAST),
    (rewritten_data, StoredData(paths=("dataset.images",), factor=1 / 255, arrays=2)),
    (rewritten_data, StoredData(paths=("dataset.images",), factor=0.9, shift=-4.5e-11, arrays=2)),
    (rewritten_data, StoredData(paths=("dataset.images",), factor=0.5, shift=math.nan, arrays=2)),
    (rewritten_data, StoredData(paths=("dataset.ids",), factor=0.0, shift=103.0, arrays=2)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (one_class_batches, MIXED),
    (one_class_batches, replace(MIXED, batches=())),
    (one_class_batches, replace(MIXED, batches=((1, 0, 0), (1, 5, 5)) * 20)),
    (one_class_batches, replace(MIXED, batches=((2, 0, 0), (2, 0, 1), (2, 1, 1), (2, 0, 1)) * 16)),
    (one_class_batches, replace(MIXED, batches=((4, 0, 0),) * 56 + ((4, 0, 1),) * 8, shuffled=False)),
    (one_class_batches, replace(MIXED, batches=((32, 0, 0),) * 64, shuffled=True)),
    (one_class_batches, replace(MIXED, batches=((32, 0, 0),) * 64)),
    (one_class_batches, replace(MIXED, batches=((32, 0, 0),) * 40, classes=10, per_epoch=41)),
    (one_class_batches, replace(MIXED, batches=((32, 0, 0),) * 20, classes=10, per_epoch=20)),
    (one_class_batches, replace(MIXED, batches=((32, 0, 0),) * 40, classes=1, per_epoch=40)),
    (one_class_batches, replace(MIXED, batches=((16, 0, 0), (16, 1, 1)), shuffled=False)),
    (one_class_batches, replace(MADE, batches=MADE.batches[1:])),
    (one_class_batches, replace(MADE, batches=(*MADE.batches, (32, 1.0, 1.0)))),
    (one_class_batches, replace(ONE_FOR_ALL, batches=((32, 4.0, 4.0),))),
    (non_finite_input, Finiteness()),
    (non_finite_input, replace(NAN, value="-inf", loss_finite=True)),
    (constant_input, first(TABLE)),
    (constant_input, first(TABLE, ZEROS)),
    (constant_input, first(ZEROS, unread=("Transpose",))),
    (constant_input, first()),
    (constant_input, first(LABEL, LABEL, drawn=True)),
    (constant_input, first(LABEL, generates=True)),
    (constant_input, first(ONE_HOT, generates=True)),
    (constant_input, first(replace(TABLE, equal_rows=True, shape=(2, 20)))),
    (constant_input, first(replace(FLOORED, zeros=0.96))),
    (constant_input, first(replace(FLOORED, shape=(32, 12, 8, 8)))),
    (constant_input, first(replace(FLOORED, shape=(32, 5000)))),
    (unscaled_input, first(TABLE, IMAGES)),
    (unscaled_input, first(replace(PIXELS, high=1.0, mean=0.5, deviation=0.2))),
    (unscaled_input, first(replace(PIXELS, operation="embedding"))),
    (unscaled_input, first(replace(TWICE, twice=0.99), replace(TWICE, high=1.0), replace(ZEROS, twice=1.0))),
    (unscaled_input, first(replace(PIXELS, operation="batch_norm"))),
    (unscaled_input, first(replace(TABLE, feature_high=20.0, feature_median=0.1))),
    (repeated_batch, replace(SAME, batches=tuple((i, 0, i) for i in range(16)))),
    (repeated_batch, replace(SAME, batches=tuple((i, i // 2, i % 2) for i in range(16)))),
    (repeated_batch, replace(SAME, batches=tuple((i, i, 0) for i in range(16)))),
    (repeated_batch, replace(SAME, variety=3)),
    (repeated_batch, replace(GENERATOR, workers=1)),
    (batch_of_one, replace(LAST, samples=64)),
    (batch_of_one, replace(LAST, samples=66)),
    (batch_of_one, replace(LAST, layers=())),
    (batch_of_one, replace(LAST, samples=-1)),
    (batch_of_one, replace(LAST, size=1)),
    (rewritten_data, StoredData(arrays=2)),
]


@pytest.mark.parametrize(
    ("check", "seen", "severity"),
    [
        (non_finite_input, NAN, Severity.ERROR),
        (non_finite_input, replace(NAN, loss_finite=True), Severity.INFO),
        (non_finite_input, replace(NAN, loss_finite=None), Severity.INFO),
        (unscaled_input, first(PIXELS), Severity.WARNING),
        (unscaled_input, first(replace(PIXELS, normalised=True)), Severity.INFO),
    ],
)
def test_severity_follows_the_evidence(check: Check[Any], seen: Evidence, severity: Severity) -> None:
    (alert,) = check(seen)
    assert isinstance(alert, Alert)
    assert alert.severity is severity


def test_what_cannot_be_judged_is_skipped() -> None:
    for check, seen in (
        (one_class_batches, replace(MIXED, batches=())),
        (constant_input, first()),
        (constant_input, first(LABEL, drawn=True)),
        (batch_of_one, replace(LAST, samples=-1)),
    ):
        (found,) = check(seen)
        assert isinstance(found, Skip)


def test_the_limit_of_the_scale_is_an_option() -> None:
    assert not list(unscaled_input(first(PIXELS), limit=500.0))
    assert list(unscaled_input(first(TABLE), limit=0.5))
