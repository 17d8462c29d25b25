import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.initial_loss import initial_loss_off
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.first_loss import FirstLoss

LN10 = math.log(10)
HEALTHY = FirstLoss(
    kind="softmax",
    function="cross_entropy",
    where="train.py:31",
    reported=2.34,
    seen=2.34,
    expected=LN10,
    name="ln 10",
    standard_error=0.05,
    targets=32,
    samples=32,
    classes=10,
    spread=0.03,
    common=0.01,
    top_class=4,
    fit=0.01,
    prior=2.2,
    head="net.head.weight",
    head_scale=0.58,
)
BINARY = replace(
    HEALTHY,
    kind="binary",
    function="binary_cross_entropy_with_logits",
    classes=0,
    seen=0.71,
    expected=math.log(2),
    name="ln 2",
)
DISTILLED = replace(
    HEALTHY, kind="divergence", function="kl_div", seen=0.6, expected=0.5, name="equal probabilities", spread=math.nan
)
RETURNED = FirstLoss(kind="returned", function="training_step", seen=2.3, expected=LN10, name="ln 10", classes=10)


def above(excess: float, **more: Any) -> FirstLoss:
    """A first loss this far above ln 10, all of it from scores that differ."""
    return replace(HEALTHY, seen=LN10 + excess, reported=LN10 + excess, **{"spread": excess, "fit": 0.0, **more})


LARGE_HEAD = above(9.0, head_scale=12.0, standard_error=0.6)
HOT_BIAS = above(8.0, common=7.9, top_class=3, standard_error=0.7)
FACTOR = above(31.4, common=25.0, top_class=2, standard_error=4.1)
CONTRADICTING = above(5.0, spread=1.0, fit=4.0, standard_error=0.3)
SUMMED = replace(HEALTHY, reduction="sum", reported=2.34 * 512, targets=512, undivided=True)
POSITIONS = above(7.0, contrastive=True, classes=32, expected=math.log(32), name="ln 32", standard_error=1.5)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (initial_loss_off, LARGE_HEAD),
    (initial_loss_off, HOT_BIAS),
    (initial_loss_off, FACTOR),
    (initial_loss_off, CONTRADICTING),
    (initial_loss_off, above(5.0, head_scale=0.5, standard_error=0.3)),
    (initial_loss_off, above(1.5)),
    (initial_loss_off, above(0.6, head_scale=2.9)),
    (initial_loss_off, above(0.6, head_scale=2.9, standard_error=0.2)),
    (initial_loss_off, SUMMED),
    (initial_loss_off, replace(SUMMED, rate=1.0)),
    (initial_loss_off, replace(SUMMED, rate=1e-4)),
    (initial_loss_off, replace(SUMMED, reduction="mean", reported=2.34)),
    (initial_loss_off, replace(HEALTHY, seen=1.1)),
    (initial_loss_off, replace(HEALTHY, seen=math.nan)),
    (initial_loss_off, replace(HEALTHY, in_bits=True)),
    (initial_loss_off, replace(BINARY, seen=4.2, common=0.3, spread=9.0)),
    (initial_loss_off, replace(BINARY, function="binary_cross_entropy", seen=9.0, derived=True)),
    (initial_loss_off, replace(DISTILLED, seen=6.0)),
    (initial_loss_off, replace(LARGE_HEAD, kind="scores", function="log_softmax", fit=math.nan)),
    (initial_loss_off, POSITIONS),
    (initial_loss_off, above(40.0, cosine=True)),
    (initial_loss_off, replace(RETURNED, seen=LN10 / math.log(2))),
    (initial_loss_off, replace(RETURNED, seen=32 * LN10)),
    (initial_loss_off, replace(RETURNED, seen=17.7)),
    (initial_loss_off, replace(RETURNED, seen=9.0, expected=1.5, name="expected_loss", classes=0)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (initial_loss_off, HEALTHY),
    (initial_loss_off, above(0.29, standard_error=0.0)),
    (initial_loss_off, above(0.6, standard_error=0.1)),
    (initial_loss_off, replace(HEALTHY, seen=2.1)),
    (initial_loss_off, replace(HEALTHY, seen=0.5, prior=0.6)),
    (initial_loss_off, replace(HEALTHY, spread=0.0, fit=0.0, seen=LN10, standard_error=0.0)),
    (initial_loss_off, replace(HEALTHY, resumed=True, seen=0.1)),
    (initial_loss_off, replace(LARGE_HEAD, standard_error=math.nan, targets=1, samples=1)),
    (initial_loss_off, BINARY),
    (initial_loss_off, replace(BINARY, seen=0.004)),
    (initial_loss_off, replace(BINARY, seen=4.68, expected=math.log(100), name="equal probabilities")),
    (initial_loss_off, replace(POSITIONS, seen=0.2)),
    (initial_loss_off, replace(SUMMED, undivided=False)),
    (initial_loss_off, replace(SUMMED, targets=4)),
    (initial_loss_off, replace(BINARY, undivided=True, reduction="sum", reported=500.0, targets=784)),
    (initial_loss_off, DISTILLED),
    (initial_loss_off, replace(DISTILLED, seen=0.001)),
    (initial_loss_off, RETURNED),
]


def only(seen: FirstLoss, **options: Any) -> Alert:
    (found,) = (f for f in initial_loss_off(seen, **options) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize("classes", [2, 10, 100, 1000, 50_257])
@pytest.mark.parametrize("error", [0.0, 0.02, 0.3])
def test_the_limits_follow_from_the_numbers(classes: int, error: float) -> None:
    expected = math.log(classes)
    seen = replace(HEALTHY, classes=classes, expected=expected, prior=0.0, standard_error=error)
    for limit, least in (
        (0.3, Severity.INFO),
        (1.0, Severity.WARNING),
        (max(3.0, expected), Severity.ERROR),
    ):
        just = limit + 4 * error
        assert only(replace(seen, seen=expected + just + 1e-6)).severity is least
        below = [f for f in initial_loss_off(replace(seen, seen=expected + just - 1e-6)) if isinstance(f, Alert)]
        assert all(alert.severity < least for alert in below)


@pytest.mark.parametrize("loss", [7.0, 20.0])
def test_seven_and_twenty_for_ten_classes_fail(loss: float) -> None:
    assert only(replace(HEALTHY, seen=loss, standard_error=0.2)).severity is Severity.ERROR


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(LARGE_HEAD, "net.head.weight is large (rms·√inputs 12", id="head"),
        pytest.param(HOT_BIAS, "class 3", id="bias"),
        pytest.param(CONTRADICTING, "order of the labels", id="labels"),
        pytest.param(above(5.0, standard_error=0.3), "scale the inputs", id="inputs"),
        pytest.param(SUMMED, "mean", id="sum"),
        pytest.param(POSITIONS, "normalise", id="contrastive"),
        pytest.param(replace(RETURNED, seen=LN10 / math.log(2)), "log2", id="bits"),
        pytest.param(replace(RETURNED, seen=32 * LN10), "32 times", id="multiple"),
    ],
)
def test_the_hint_names_what_the_evidence_supports(seen: FirstLoss, words: str) -> None:
    assert words in only(seen).hint


def test_a_sum_is_an_error_unless_the_rate_is_meant_for_it() -> None:
    assert only(SUMMED).severity is Severity.ERROR
    assert only(replace(SUMMED, rate=0.1)).severity is Severity.ERROR
    assert only(replace(SUMMED, rate=0.5 / 512)).severity is Severity.INFO
    assert only(replace(SUMMED, clipped=True)).severity is Severity.INFO


def test_a_scale_that_is_a_choice_is_never_an_alarm() -> None:
    assert only(above(41.0, cosine=True)).severity is Severity.INFO
    assert only(replace(BINARY, seen=14.0, derived=True)).severity is Severity.INFO


def test_far_below_is_never_an_alarm() -> None:
    assert only(replace(HEALTHY, seen=0.01)).severity is Severity.INFO


def test_tolerance_is_an_option() -> None:
    seen = above(0.7)
    assert only(seen).severity is Severity.INFO
    assert only(seen, tolerance=0.3).severity is Severity.WARNING


@pytest.mark.parametrize(
    "seen", [replace(HEALTHY, resumed=True), replace(HEALTHY, standard_error=math.nan)], ids=["resumed", "one target"]
)
def test_what_cannot_be_judged_is_skipped_aloud(seen: FirstLoss) -> None:
    assert [type(f) for f in initial_loss_off(seen)] == [Skip]
