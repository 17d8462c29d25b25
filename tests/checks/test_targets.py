import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.targets import bad_targets, misaligned_targets, padding_in_loss
from sanity_watchdog.evidence.alignments import AlignmentTargets
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import TargetRange, TokenTargets

LABELS = TargetRange(
    function="cross_entropy",
    where="train.py:31",
    classes=10,
    low=0,
    high=9,
    ignore_index=-100,
    valid=32,
    total=32,
    shape=(32,),
    input_shape=(32, 10),
    whole_samples=True,
)
SOFT = replace(
    LABELS, classes=0, ignore_index=None, dtype="float32", low=0.0, high=1.0, shape=(32, 10), sum_low=1.0, sum_high=1.0
)
BINARY = replace(
    LABELS, function="binary_cross_entropy_with_logits", classes=0, ignore_index=None, dtype="float32", high=1.0
)
SIGNED = replace(BINARY, function="soft_margin_loss", low=-1.0)
LETTERS = AlignmentTargets(
    function="ctc_loss",
    where="train.py:31",
    classes=7,
    low=1,
    high=6,
    valid=130,
    total=130,
    input_shape=(24, 32, 7),
    samples=32,
    steps=24,
    longest=24,
)
TEXT = TokenTargets(
    function="cross_entropy",
    where="train.py:31",
    causal=True,
    length=24,
    valid=700,
    agreement=((-1, 0.01), (0, 0.02), (1, 0.998), (2, 0.02)),
    distinct=60,
)


def shifted(best: int, share: float = 1.0, **more: Any) -> TokenTargets:
    return replace(TEXT, agreement=tuple((s, share if s == best else 0.02) for s in (-1, 0, 1, 2)), **more)


FIRING: list[tuple[Check[Any], Evidence]] = [
    (bad_targets, replace(LABELS, low=1, high=10)),
    (bad_targets, replace(LABELS, low=-1)),
    (bad_targets, replace(LABELS, high=255)),
    (bad_targets, replace(LABELS, high=41)),
    (bad_targets, replace(LABELS, low=math.nan, high=math.nan, valid=0)),
    (bad_targets, replace(LABELS, ignore_index=0, low=1, valid=29)),
    (bad_targets, replace(SOFT, low=-0.2)),
    (bad_targets, replace(SOFT, sum_low=0.0, sum_high=3.0)),
    (bad_targets, replace(SOFT, shape=(32,), input_shape=(32,), sum_low=14.0, sum_high=14.0)),
    (bad_targets, replace(BINARY, high=255.0)),
    (bad_targets, replace(BINARY, low=-1.0)),
    (bad_targets, replace(SIGNED, low=0.0)),
    (bad_targets, replace(SIGNED, function="hinge", low=0.0)),
    (bad_targets, replace(SIGNED, function="poisson_nll_loss", low=-1.55, high=1.55)),
    (bad_targets, replace(LETTERS, high=7)),
    (bad_targets, replace(LETTERS, low=-1)),
    (bad_targets, replace(LETTERS, low=0, blanks=20, ending=1)),
    (bad_targets, replace(LETTERS, high=6, blank=6, blanks=20)),
    (bad_targets, replace(LETTERS, low=0, blanks=40, ending=40)),
    (bad_targets, replace(LETTERS, too_long=1)),
    (bad_targets, replace(LETTERS, too_long=20, zero_infinity=True)),
    (bad_targets, replace(LETTERS, longest=48, error="RuntimeError: Expected input_lengths to have value at most 24")),
    (bad_targets, replace(LETTERS, error="RuntimeError: target_lengths must be of size batch_size")),
    (padding_in_loss, replace(TEXT, agreement=(), labelled=0.42)),
    (padding_in_loss, TokenTargets(function="ctc_loss", length=8, valid=250, padding=0.46, token=7, distinct=7)),
    (
        bad_targets,
        replace(SOFT, shape=(32,), low=math.nan, sum_low=math.nan, sum_high=math.nan, error="RuntimeError: x"),
    ),
    (bad_targets, replace(LABELS, shape=(32, 10), low=math.nan, high=math.nan, error="RuntimeError: x", valid=-1)),
    (bad_targets, replace(LABELS, shape=(31,), error="ValueError: Expected input batch_size to match")),
    (bad_targets, replace(LABELS, shape=(32, 1), error="RuntimeError: 0D or 1D target tensor expected")),
    (bad_targets, replace(LABELS, dtype="int32", error="RuntimeError: expected scalar type Long")),
    (bad_targets, replace(LABELS, shape=(8, 24), input_shape=(8, 24, 10), error="RuntimeError: Expected target size")),
    (bad_targets, replace(BINARY, shape=(32,), input_shape=(32, 1), error="ValueError: Target size")),
    (padding_in_loss, replace(TEXT, padding=0.62, token=0)),
    (padding_in_loss, replace(TEXT, padding=0.62, token=2, inside=0.05)),
    (misaligned_targets, shifted(0)),
    (misaligned_targets, shifted(0, causal=False, left_out=30)),
    (misaligned_targets, shifted(-1)),
    (misaligned_targets, shifted(2)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (bad_targets, LABELS),
    (bad_targets, replace(LABELS, classes=11)),
    (bad_targets, replace(LABELS, valid=20)),
    (bad_targets, replace(LABELS, valid=0, low=math.nan, high=math.nan, reduction="sum")),
    (bad_targets, replace(LABELS, ignore_index=0, low=1, valid=29, whole_samples=False)),
    (bad_targets, replace(LABELS, ignore_index=0)),
    (bad_targets, SOFT),
    (bad_targets, replace(SOFT, sum_low=0.99, sum_high=1.01)),
    (bad_targets, BINARY),
    (bad_targets, replace(BINARY, low=0.2, high=0.7)),
    (bad_targets, SIGNED),
    (bad_targets, replace(SIGNED, function="poisson_nll_loss", low=0.0, high=41.0)),
    (padding_in_loss, replace(TEXT, agreement=(), labelled=0.2)),
    (padding_in_loss, TEXT),
    (padding_in_loss, replace(TEXT, padding=0.2)),
    (padding_in_loss, replace(TEXT, padding=0.36, token=0, inside=0.4)),
    (misaligned_targets, TEXT),
    (misaligned_targets, shifted(0, causal=False)),
    (misaligned_targets, shifted(0, causal=False, left_out=1)),
    (misaligned_targets, shifted(0, share=0.9, causal=False, left_out=30)),
    (misaligned_targets, shifted(-1, causal=False, left_out=30)),
    (misaligned_targets, shifted(0, share=0.8)),
    (misaligned_targets, shifted(2, elsewhere=True)),
    (misaligned_targets, replace(TEXT, agreement=((-1, 1.0), (0, 1.0), (1, 1.0), (2, 1.0)))),
    (bad_targets, LETTERS),
    (bad_targets, replace(LETTERS, low=math.nan, high=math.nan, valid=0)),
    (bad_targets, replace(LETTERS, too_long=3, samples=4, zero_infinity=True)),
    (bad_targets, replace(LETTERS, too_long=12, zero_infinity=True)),
    (padding_in_loss, TokenTargets(function="ctc_loss", length=8, valid=250, padding=0.1, token=7, distinct=7)),
]


def only(check: Check[Any], seen: Evidence) -> Alert:
    (found,) = (f for f in check(seen) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(replace(LABELS, low=1, high=10), "subtract 1", id="from one"),
        pytest.param(replace(LABELS, low=-1), "ignore_index=-1", id="minus one"),
        pytest.param(replace(LABELS, low=-1, high=8), "add 1", id="one too low"),
        pytest.param(replace(LABELS, high=255), "ignore_index=255", id="255"),
        pytest.param(replace(LABELS, high=41), "42 outputs", id="another data set"),
        pytest.param(replace(BINARY, high=255.0), "divide by 255", id="mask"),
    ],
)
def test_the_hint_follows_the_range(seen: TargetRange, words: str) -> None:
    assert words in only(bad_targets, seen).hint


def test_several_labels_per_sample_are_no_certainty() -> None:
    assert only(bad_targets, replace(SOFT, sum_low=0.0, sum_high=3.0)).severity is Severity.WARNING


def test_too_few_tokens_are_skipped() -> None:
    assert [type(f) for f in misaligned_targets(replace(TEXT, valid=4))] == [Skip]


def test_autoencoders_may_predict_their_input() -> None:
    assert not list(misaligned_targets(shifted(0, causal=False)))
