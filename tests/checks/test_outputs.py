import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.outputs import clipped_outputs, impossible_loss, unused_outputs
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.losses import BinaryLoss, DistanceLoss, Likelihood, LossSeen, Origin, SoftmaxLoss
from sanity_watchdog.evidence.targets import LabelHistory

LOGITS = SoftmaxLoss(
    function="cross_entropy",
    where="train.py:31",
    shape=(32, 10),
    value=2.3,
    low=-1.2,
    high=1.4,
    classes=10,
    perfect=0.0,
)
BINARY = BinaryLoss(
    function="binary_cross_entropy_with_logits", shape=(32, 6), value=0.7, low=-1.0, high=1.0, perfect=0.0
)
REGRESSION = DistanceLoss(
    function="mse_loss",
    where="train.py:31",
    value=1.1,
    low=-0.8,
    high=1.1,
    target_low=-2.0,
    target_high=2.1,
    negative=0.5,
)
IMAGENET = LabelHistory(function="cross_entropy", classes=1000, counts=(32,) * 10, highs=(9,) * 10, distinct=10)


def after(seen: LossSeen, name: str, low: float, high: float, **more: Any) -> LossSeen:
    return replace(seen, origin=Origin(name, seen.shape, None, "model.py:12"), low=low, high=high, **more)


FIRING: list[tuple[Check[Any], Evidence]] = [
    (clipped_outputs, replace(REGRESSION, low=0.0, high=2.0, zeros=0.4)),
    (clipped_outputs, replace(REGRESSION, low=0.0, high=2.0, zeros=0.4, origin=Origin("clamp", (32,), None, "m.py:8"))),
    (unused_outputs, IMAGENET),
    (clipped_outputs, after(LOGITS, "relu", 0.0, 0.9, zeros=0.5)),
    (clipped_outputs, after(LOGITS, "tanh", -0.9, 0.9)),
    (clipped_outputs, replace(LOGITS, low=0.0, high=0.9, zeros=0.4, followed=False)),
    (clipped_outputs, after(BINARY, "relu", 0.0, 0.9, zeros=0.5)),
    (clipped_outputs, after(REGRESSION, "relu", 0.0, 0.9)),
    (clipped_outputs, after(REGRESSION, "sigmoid", 0.3, 0.7, above_one=0.2)),
    (clipped_outputs, after(REGRESSION, "tanh", -0.3, 0.7, above_one=0.2, below_minus_one=0.2)),
    (clipped_outputs, after(REGRESSION, "relu", 0.0, 0.0, zeros=1.0, negative=0.0, target_low=1.0)),
    (impossible_loss, replace(LOGITS, value=-0.4)),
    (impossible_loss, replace(BINARY, value=-12.0)),
    (impossible_loss, replace(LOGITS, value=0.2, perfect=0.5)),
    (impossible_loss, replace(LOGITS, value=49.0, perfect=55.0, mass=512.0, reduction="sum")),
    (impossible_loss, replace(REGRESSION, value=-1.0)),
    (impossible_loss, replace(LOGITS, negated=True)),
    (impossible_loss, Likelihood(function="Normal.log_prob", where="train.py:31", value=-2.1)),
    (impossible_loss, Likelihood(function="overlap", where="train.py:31", value=0.4)),
    (impossible_loss, Likelihood(function="squared error", where="train.py:31", value=2.1, distance=True)),
    (
        impossible_loss,
        Likelihood(function="divergence from a fixed Gaussian", where="train.py:31", value=19.0, divergence=True),
    ),
    (impossible_loss, Likelihood(function="clipped surrogate", where="train.py:31", value=0.02, surrogate=True)),
    (impossible_loss, Likelihood(function="log-scale", where="train.py:31", value=-3.1, scale=True)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (clipped_outputs, replace(REGRESSION, low=0.0, high=2.0, zeros=0.4, negative=0.02)),
    (clipped_outputs, replace(REGRESSION, low=0.0, high=2.0, zeros=0.1)),
    (unused_outputs, replace(IMAGENET, classes=10)),
    (unused_outputs, replace(IMAGENET, classes=11)),
    (unused_outputs, replace(IMAGENET, counts=(16,) * 10)),
    (unused_outputs, replace(IMAGENET, tokens=True)),
    (unused_outputs, replace(IMAGENET, distinct=2)),
    (unused_outputs, replace(IMAGENET, highs=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), distinct=10)),
    (clipped_outputs, LOGITS),
    (clipped_outputs, BINARY),
    (clipped_outputs, REGRESSION),
    (clipped_outputs, after(LOGITS, "log_softmax", -4.0, -1.0)),
    (clipped_outputs, after(REGRESSION, "sigmoid", 0.1, 0.9, negative=0.0)),
    (clipped_outputs, after(REGRESSION, "sigmoid", 0.1, 0.9, negative=0.04)),
    (clipped_outputs, after(REGRESSION, "relu", 0.0, 3.0, negative=0.0, target_low=0.0)),
    (clipped_outputs, after(REGRESSION, "tanh", -0.9, 0.9)),
    (clipped_outputs, replace(BINARY, logits=False, low=0.0, zeros=0.5)),
    (clipped_outputs, replace(LOGITS, low=0.0, high=0.9, zeros=0.01)),
    (clipped_outputs, replace(LOGITS, low=0.0, high=0.9, zeros=0.4, raw=True)),
    (impossible_loss, LOGITS),
    (impossible_loss, replace(LOGITS, value=0.0)),
    (impossible_loss, replace(LOGITS, value=0.4999, perfect=0.5)),
    (impossible_loss, replace(LOGITS, value=0.495, perfect=0.5, dtype="bfloat16")),
    (impossible_loss, replace(LOGITS, value=49.0, perfect=55.0, mass=512.0, reduction="sum", dtype="bfloat16")),
    (impossible_loss, replace(BINARY, value=3.0, perfect=3.5, terms=64.0, reduction="sum", dtype="bfloat16")),
    (impossible_loss, REGRESSION),
]


@pytest.mark.parametrize(
    ("check", "seen"),
    [
        (clipped_outputs, LossSeen(function="ctc_loss")),
        (impossible_loss, LossSeen(function="gaussian_nll_loss", value=-3.0)),
        (impossible_loss, replace(LOGITS, value=math.nan)),
        (impossible_loss, replace(LOGITS, function="nll_loss", logs=True, log_error=2.0, value=-0.2)),
        (unused_outputs, replace(IMAGENET, tokens=True)),
    ],
    ids=["no range", "density", "nan", "advantage", "tokens"],
)
def test_what_cannot_be_judged_is_skipped_aloud(check: Check[Any], seen: Evidence) -> None:
    assert [type(f) for f in check(seen)] == [Skip]


def test_outputs_that_are_all_zero_are_named() -> None:
    (alert,) = clipped_outputs(after(REGRESSION, "relu", 0.0, 0.0, zeros=1.0, negative=0.0, target_low=1.0))
    assert isinstance(alert, Alert)
    assert alert.message.startswith("every output is exactly 0")
    assert "model.py:12" in alert.hint
