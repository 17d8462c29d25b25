import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.log_inputs import sums_to_one
from sanity_watchdog.checks.loss_inputs import double_softmax, wrong_loss_input
from sanity_watchdog.evidence.alignments import AlignmentLoss
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.losses import (
    AcrossLoss,
    AcrossVectors,
    BinaryLoss,
    CutLoss,
    DistanceLoss,
    DivergenceLoss,
    Origin,
    OverlapLoss,
    SoftmaxLoss,
    SquashedTwice,
)

LOGITS = SoftmaxLoss(
    function="cross_entropy",
    where="train.py:31",
    shape=(32, 10),
    target_shape=(32,),
    value=2.31,
    low=-1.2,
    high=1.4,
    classes=10,
    rows=32,
    sum_error=3.1,
    column_error=9.0,
    log_error=2.4,
    perfect=0.0,
)
PROBABILITIES = replace(LOGITS, low=0.06, high=0.15, sum_error=1e-7, column_error=2.4, log_error=1.3)
SOFTMAX = Origin("softmax", (32, 10), 1, "model.py:12")
LOGS = replace(LOGITS, function="nll_loss", low=-2.6, high=-2.1, sum_error=24.0, log_error=2e-7, logs=True)
RAW = replace(LOGITS, function="nll_loss", value=-0.08)
UNLIKELY = replace(RAW, low=-0.9, high=-1e-3, log_error=math.log(9), sum_error=8.0)
BINARY = BinaryLoss(
    function="binary_cross_entropy_with_logits",
    where="train.py:31",
    shape=(32, 6),
    target_shape=(32, 6),
    value=0.7,
    low=-0.6,
    high=0.8,
    perfect=0.0,
)
KL = DivergenceLoss(
    function="kl_div",
    shape=(32, 10),
    reduction="batchmean",
    low=-3.0,
    high=-1.9,
    log_error=1e-7,
    sum_error=20.0,
    target_low=0.0,
    target_high=0.9,
)
CLAMPED = replace(BINARY, function="binary_cross_entropy", logits=False, low=0.0, high=1.0, edges=0.1)
CLAMPED = replace(CLAMPED, origin=Origin("clamp", (32, 6), None, "model.py:12"))
SOFTMAXED = replace(CLAMPED, edges=0.0, origin=Origin("softmax", (32, 6), 1, "model.py:12"))
CTC = AlignmentLoss(
    function="ctc_loss",
    where="train.py:31",
    shape=(24, 32, 7),
    classes=7,
    low=-3.1,
    high=-0.9,
    rows=600,
    sum_error=14.0,
    log_error=3e-7,
    logs=True,
    lengths=32,
)
RAW_CTC = replace(CTC, logs=False, low=-1.1, high=1.4, log_error=2.3, sum_error=4.0)
MSE = DistanceLoss(function="mse_loss", shape=(32, 1), low=0.1, high=0.9)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (double_softmax, replace(PROBABILITIES, origin=SOFTMAX)),
    (double_softmax, PROBABILITIES),
    (wrong_loss_input, replace(LOGITS, shape=(32, 20, 20), classes=20, crossed=True)),
    (wrong_loss_input, replace(LOGITS, shape=(240, 8), classes=8, repeated=True)),
    (double_softmax, replace(PROBABILITIES, stage="validation")),
    (double_softmax, SquashedTwice(function="log_softmax", where="train.py:12", shape=(32, 10), origin=SOFTMAX)),
    (double_softmax, SquashedTwice(function="softmax", where="train.py:12", shape=(32, 10), origin=SOFTMAX)),
    (
        double_softmax,
        replace(PROBABILITIES, rows=1, shape=(1, 10), origin=Origin("softmax", (1, 10), 1, "model.py:12")),
    ),
    (double_softmax, replace(PROBABILITIES, sum_error=2e-3, dtype="bfloat16")),
    (double_softmax, replace(LOGITS, low=0.4, high=0.6, origin=Origin("sigmoid", (32, 10), None, "model.py:12"))),
    (double_softmax, replace(BINARY, low=0.4, high=0.6, origin=Origin("sigmoid", (32, 6), None, "model.py:12"))),
    (
        wrong_loss_input,
        replace(
            BINARY,
            function="binary_cross_entropy",
            logits=False,
            low=0.1,
            high=0.3,
            together=3.0,
            origin=Origin("softmax", (32, 6), 1, "model.py:12"),
        ),
    ),
    (wrong_loss_input, RAW),
    (wrong_loss_input, replace(RAW, low=0.0, high=0.9, sum_error=1e-7, value=-0.1)),
    (wrong_loss_input, replace(RAW, log_error=math.nan)),
    (wrong_loss_input, replace(UNLIKELY, high=0.2)),
    (wrong_loss_input, replace(UNLIKELY, low=0.0, high=0.0, log_error=math.log(10), sum_error=9.0)),
    (wrong_loss_input, replace(LOGITS, classes=1, shape=(32, 1), value=0.0)),
    (wrong_loss_input, replace(LOGITS, classes=32, shape=(32, 32), itself="label")),
    (wrong_loss_input, replace(LOGITS, classes=32, shape=(32, 32), itself="rival")),
    (wrong_loss_input, replace(LOGITS, origin=Origin("softmax", (32, 10), 0, "model.py:12"))),
    (wrong_loss_input, replace(LOGS, origin=Origin("log_softmax", (32, 10), 0, "model.py:12"), log_error=2.0)),
    (wrong_loss_input, replace(LOGITS, low=0.0, high=0.3, column_error=1e-7, sum_error=0.8)),
    (wrong_loss_input, replace(BINARY, low=-3.0, high=-0.1, origin=Origin("logsigmoid", (32, 6), None, "model.py:12"))),
    (wrong_loss_input, replace(BINARY, function="binary_cross_entropy", logits=False, error="RuntimeError: x")),
    (wrong_loss_input, replace(KL, log_error=1.4, sum_error=1e-7, low=0.0, high=0.9)),
    (wrong_loss_input, replace(KL, log_error=3.0, sum_error=4.0, low=-1.0, high=2.0)),
    (wrong_loss_input, replace(KL, target_low=-4.0, target_high=-0.1)),
    (wrong_loss_input, replace(KL, low=0.0, high=1.0, sum_error=0.0, log_error=1.0, target_low=-4.0, target_high=-0.1)),
    (wrong_loss_input, replace(KL, log_target=True, target_high=0.9)),
    (wrong_loss_input, replace(KL, reduction="mean")),
    (wrong_loss_input, SOFTMAXED),
    (wrong_loss_input, AcrossVectors(function="cross_entropy", where="train.py:31")),
    (wrong_loss_input, RAW_CTC),
    (wrong_loss_input, replace(CLAMPED, edges=0.6)),
    (wrong_loss_input, replace(CLAMPED, origin=Origin("softmax", (32, 1), 1, "model.py:12"), low=1.0)),
    (wrong_loss_input, CutLoss(function="log", where="train.py:31", low=1e-6, high=0.9, edges=0.45)),
    (wrong_loss_input, OverlapLoss(function="overlap", where="train.py:31", low=-2.3, high=2.5)),
    (wrong_loss_input, AcrossLoss(function="softmax", where="train.py:32")),
    (wrong_loss_input, replace(RAW_CTC, low=0.01, high=0.4, sum_error=1e-7, log_error=1.9)),
    (wrong_loss_input, replace(CTC, shape=(32, 24, 7), error="RuntimeError: input_lengths must be of size batch_size")),
    (wrong_loss_input, replace(CTC, log_error=1.8, origin=Origin("log_softmax", (32, 24, 7), 1, "model.py:12"))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (double_softmax, LOGITS),
    (wrong_loss_input, UNLIKELY),
    (wrong_loss_input, replace(KL, low=math.nan, high=math.nan, log_error=math.nan, sum_error=math.nan)),
    (wrong_loss_input, replace(UNLIKELY, low=-math.inf)),
    (wrong_loss_input, replace(LOGS, logs=False, low=-math.inf)),
    (double_softmax, BINARY),
    (double_softmax, replace(BINARY, low=0.4, high=0.6)),
    (double_softmax, replace(BINARY, logits=False, low=0.4, high=0.6, origin=Origin("sigmoid", (32, 6)))),
    (double_softmax, replace(LOGITS, origin=Origin("log_softmax", (32, 10), 1), log_error=1e-7, high=-0.1)),
    (double_softmax, replace(PROBABILITIES, rows=1, classes=2)),
    (double_softmax, replace(PROBABILITIES, rows=3, sum_error=2e-3, dtype="bfloat16")),
    (double_softmax, replace(PROBABILITIES, high=1.2)),
    (double_softmax, replace(LOGITS, sum_error=1e-3, low=0.0, high=0.9)),
    (wrong_loss_input, LOGITS),
    (wrong_loss_input, LOGS),
    (wrong_loss_input, replace(LOGS, log_error=0.15, dtype="bfloat16", low=-11.0)),
    (wrong_loss_input, replace(LOGS, log_error=0.09)),
    (wrong_loss_input, replace(RAW, logs=True)),
    (wrong_loss_input, replace(LOGITS, origin=Origin("log_softmax", (32, 10), 1))),
    (wrong_loss_input, replace(PROBABILITIES, origin=SOFTMAX)),
    (wrong_loss_input, replace(LOGITS, origin=Origin("softmax", (4, 8, 10), 2), shape=(32, 10))),
    (wrong_loss_input, replace(LOGS, shape=(4, 10, 10), origin=Origin("log_softmax", (4, 10, 10), 2))),
    (wrong_loss_input, BINARY),
    (wrong_loss_input, replace(BINARY, logits=False, low=0.0, high=1.0)),
    (wrong_loss_input, KL),
    (wrong_loss_input, replace(KL, reduction="mean", shape=(10,))),
    (wrong_loss_input, replace(SOFTMAXED, shape=(32,), target_shape=(32,))),
    (wrong_loss_input, replace(SOFTMAXED, origin=Origin("softmax", (32, 6), 0, "model.py:12"))),
    (wrong_loss_input, replace(KL, log_target=True, target_low=-4.0, target_high=-0.1)),
    (wrong_loss_input, CTC),
    (wrong_loss_input, CLAMPED),
    (wrong_loss_input, replace(CLAMPED, origin=Origin("sigmoid", (32, 6), None, "model.py:12"), edges=0.9)),
    (wrong_loss_input, replace(CLAMPED, origin=Origin("softmax", (32, 2), 1, "model.py:12"), edges=0.9)),
    (wrong_loss_input, replace(CTC, log_error=1.2)),
    (wrong_loss_input, replace(CTC, log_error=math.nan, logs=False)),
    (wrong_loss_input, replace(CTC, log_error=0.05, logs=False, dtype="bfloat16", low=-11.0)),
    (wrong_loss_input, replace(CTC, origin=Origin("log_softmax", (32, 24, 7), 2, "model.py:12"))),
    (wrong_loss_input, replace(CTC, shape=(24, 1, 7), lengths=1, rows=24)),
]


def fires(check: Check[Any], seen: Evidence) -> bool:
    return any(isinstance(f, Alert) for f in check(seen))


@pytest.mark.parametrize("seen", [MSE, LOGS], ids=["mse", "nll"])
def test_other_losses_are_skipped(seen: Evidence) -> None:
    assert [type(f) for f in double_softmax(seen)] == [Skip]


def test_a_sigmoid_that_could_not_be_seen_is_skipped() -> None:
    assert [type(f) for f in double_softmax(replace(BINARY, followed=False))] == [Skip]


@pytest.mark.parametrize(
    ("rows", "classes", "dtype", "enough"),
    [
        (1, 2, "float32", False),
        (2, 2, "float32", False),
        (3, 2, "float32", True),
        (1, 10, "float32", True),
        (1, 10, "bfloat16", False),
        (3, 1000, "float16", False),
        (4, 10, "bfloat16", True),
        (8, 2, "float16", True),
    ],
)
def test_how_many_rows_prove_probabilities(rows: int, classes: int, dtype: str, enough: bool) -> None:
    assert sums_to_one(0.0, 0.1, 0.9, rows, classes, dtype) is enough


def test_the_line_of_the_softmax_is_in_the_hint() -> None:
    (alert,) = double_softmax(replace(PROBABILITIES, origin=SOFTMAX))
    assert isinstance(alert, Alert)
    assert alert.where == "train.py:31"
    assert "model.py:12" in alert.hint


def test_a_softmax_over_positions_of_another_shape() -> None:
    right = replace(LOGITS, shape=(80, 12), classes=12, origin=Origin("log_softmax", (8, 10, 12), 2))
    assert not fires(wrong_loss_input, right)
    assert fires(wrong_loss_input, replace(right, origin=Origin("log_softmax", (8, 10, 12), 1)))
