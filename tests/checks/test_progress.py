import math
from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.leaks import too_good_too_soon
from sanity_watchdog.checks.progress import diverging_loss, non_finite_loss, stuck_at_chance
from sanity_watchdog.checks.spikes import loss_spike
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.progress import Culprit, LeakedTarget, Learning, Losses, LossFinite, Score, Spoiled
from sanity_watchdog.observe.hazards import CTC, MASKED

LN10 = math.log(10)
AT = (0, 1, 2, 3, 5, 8, 13, 21, 34)


def course(*values: float, spread: float = 0.5, chance: float = LN10, entropy: float = 2.2) -> tuple[Score, ...]:
    return tuple(
        Score(attempt=a, samples=32 * a, value=v, chance=chance, entropy=entropy, spread=spread)
        for a, v in zip(AT, values, strict=False)
    )


LEARNS = Learning(
    function="cross_entropy",
    where="train.py:20",
    classes=10,
    scores=course(2.31, 2.3, 2.2, 2.1, 2.0, 1.8, 1.5, 1.2, 0.9),
    recent=1.0,
    rate=1e-3,
    peak=1e-3,
)
FLAT = replace(LEARNS, scores=course(*(2.303,) * 9, spread=0.0), recent=2.303)
LATE = Score(attempt=404, samples=12_928, value=2.30, chance=LN10, entropy=2.2, spread=0.3)
PLATEAU = replace(FLAT, scores=(*course(*(2.303,) * 9), LATE))
RISING = replace(LEARNS, scores=course(2.3, 2.4, 2.5, 2.6, 2.9, 3.4, 4.1, 5.2, 6.9))
SQUARED = replace(LEARNS, function="mse_loss", classes=0)
DOLLARS = replace(
    SQUARED,
    scores=(*course(*(9.6e10,) * 9, chance=6.4e9), replace(LATE, value=9.1e10, chance=7e9)),
    recent=9.3e10,
)
SOON = replace(LEARNS, scores=course(2.31, 1.1, 0.4, 0.1, 0.04, 0.03))
NAN = LossFinite(batch=7, value=math.nan, earlier=(2.3, 2.1, 1.9), size=32, usual=32)
SPIKE = Losses(values=(*(0.5,) * 40, 9.0, *(0.6,) * 8), last=48, fresh=13)
LEAK = LeakedTarget(path="batch[0]", column=3, telling=1, counts=(4, 3, 5, 4, 6, 2, 4, 4), samples=32, features=20)

CULPRITS = (
    Culprit("softmax", "model.py:12", -math.inf, 2.1),
    Culprit("multi_head_attention_forward", "model.py:12", -2.4, 2.1),
    Culprit("cross_entropy", "train.py:31", -2.4, 2.1),
    Culprit("poisson_nll_loss", "train.py:31", -0.7, 2.1),
    Culprit("log", "train.py:31", -0.7, 2.1),
    Culprit("log", "train.py:31", 0.0, 1.0),
    Culprit("sqrt", "train.py:31", -1e-9, 1.0),
    Culprit("exp", "train.py:31", -3.0, 312.0),
    Culprit("div", "train.py:31", 0.0, 4.0),
    Culprit("acos", "train.py:31", -0.2, 1.0000001),
    Culprit("pow", "train.py:31", -0.2, 1.0),
    Culprit("float16 sum", "train.py:31", 0.3, 4600.0),
    Culprit("empty l1_loss", "train.py:31", 0.0, 0.0),
)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (stuck_at_chance, FLAT),
    (stuck_at_chance, replace(FLAT, scores=(*course(2.31), *FLAT.scores[1:]))),
    (stuck_at_chance, PLATEAU),
    (stuck_at_chance, DOLLARS),
    (non_finite_loss, NAN),
    (non_finite_loss, replace(NAN, bad_input="batch[0]", bad_batch=7)),
    (non_finite_loss, replace(NAN, bad_input="batch[0]", bad_batch=5)),
    (non_finite_loss, replace(NAN, ignored=True)),
    (non_finite_loss, replace(NAN, size=1)),
    (non_finite_loss, replace(NAN, value=math.inf, hazards=("log of a softmax", "a square root"))),
    (non_finite_loss, replace(NAN, precision="16-true")),
    (non_finite_loss, replace(NAN, earlier=(2.3, 40.0, 800.0))),
    (non_finite_loss, replace(NAN, earlier=(1e12,))),
    (non_finite_loss, replace(NAN, hazards=("a square root, whose slope at 0 is infinite",))),
    (non_finite_loss, replace(NAN, value=math.inf, hazards=(CTC,))),
    (non_finite_loss, replace(NAN, recovered=True)),
    (non_finite_loss, replace(NAN, spoiled=Spoiled("net.0.weight", by_others=True), hazards=("a reciprocal",))),
    (non_finite_loss, replace(NAN, spoiled=Spoiled("net.0.weight"))),
    (non_finite_loss, replace(NAN, hazards=(MASKED, "a logarithm"))),
    (non_finite_loss, replace(NAN, hazards=("an exponential, infinite above e^88",))),
    *((non_finite_loss, replace(NAN, batch=0, earlier=(), culprit=culprit)) for culprit in CULPRITS),
    (non_finite_loss, replace(NAN, hazards=("cross_entropy with class weights of 0, a mean over nothing",))),
    (loss_spike, SPIKE),
    (loss_spike, replace(SPIKE, values=(0.5, 0.5, 9.0), last=300, before=298, highest=2.0, over=True)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 40, 9.0, 14.0, 0.7), over=True)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 40, 9.0, *(8.0,) * 8))),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 8, 90.0, *(0.6,) * 9), last=17, fresh=18)),
    (diverging_loss, RISING),
    (diverging_loss, replace(LEARNS, scores=course(1.4, 5.0, 23.0, 15.0, 14.0, 12.0))),
    (diverging_loss, replace(SQUARED, scores=course(1.0, 4.0, 11.0, 60.0, chance=1.0))),
    (too_good_too_soon, SOON),
    (too_good_too_soon, LEAK),
    (too_good_too_soon, replace(LEAK, telling=4)),
    (too_good_too_soon, replace(LEAK, counts=())),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (stuck_at_chance, LEARNS),
    (stuck_at_chance, replace(FLAT, scores=FLAT.scores[:7])),
    (stuck_at_chance, replace(FLAT, scores=course(*(2.303,) * 9, spread=1e-3))),
    (stuck_at_chance, replace(FLAT, rising=True)),
    (stuck_at_chance, replace(FLAT, rate=1e-5)),
    (stuck_at_chance, replace(FLAT, rate=math.nan)),
    (stuck_at_chance, replace(FLAT, classes=0)),
    (stuck_at_chance, replace(DOLLARS, recent=6e10)),
    (stuck_at_chance, replace(DOLLARS, recent=1.1e10)),
    (stuck_at_chance, replace(DOLLARS, recent=math.nan)),
    (stuck_at_chance, replace(DOLLARS, rising=True)),
    (stuck_at_chance, replace(DOLLARS, scores=DOLLARS.scores[:9])),
    (stuck_at_chance, replace(DOLLARS, scores=(*DOLLARS.scores[:9], replace(LATE, value=9e10, chance=0.0)))),
    (stuck_at_chance, replace(PLATEAU, recent=2.25)),
    (stuck_at_chance, replace(PLATEAU, recent=math.nan)),
    (stuck_at_chance, replace(PLATEAU, classes=1000)),
    (non_finite_loss, LossFinite()),
    (loss_spike, replace(SPIKE, values=(0.5,) * 40)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 40, 4.0))),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 10, 9.0), fresh=11)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 7, 90.0, *(0.6,) * 9), last=16, fresh=17)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 19, 9.0, *(0.6,) * 9), last=28, fresh=29)),
    (loss_spike, replace(SPIKE, values=(2.3, *(0.001,) * 60, 0.5))),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 40, 9.0, *(0.6,) * 9), fresh=1)),
    (loss_spike, replace(SPIKE, values=(*(0.5,) * 40, 9.0, *(0.6,) * 7))),
    (loss_spike, replace(SPIKE, values=(*(-0.5,) * 40, 9.0))),
    (loss_spike, replace(SPIKE, values=(*(1e-4, 0.02, 6e-6, 1e-3) * 10, 1.5), over=True)),
    (diverging_loss, LEARNS),
    (diverging_loss, replace(RISING, scores=RISING.scores[:3])),
    (diverging_loss, replace(LEARNS, scores=course(0.2, 0.3, 0.5, 0.8, 1.2, 1.9, 2.3))),
    (diverging_loss, replace(LEARNS, scores=course(30.0, 25.0, 20.0, 15.0, 12.0, 9.0))),
    (diverging_loss, replace(LEARNS, scores=course(2.3, 9.0, 4.0, 2.5, 2.2, 2.1))),
    (diverging_loss, replace(SQUARED, scores=course(1.0, 1.1, 1.3, 2.5, chance=1.0))),
    (diverging_loss, replace(SQUARED, scores=course(0.0, 1e-4, 3e-4, 7e-4, chance=0.0))),
    (diverging_loss, replace(LEARNS, scores=course(2.3, 0.4, 1.4, 5.0))),
    (diverging_loss, replace(SQUARED, scores=course(26.0, 26.1, 25.9, 26.2, 26.3, chance=1.0))),
    (too_good_too_soon, LEARNS),
    (too_good_too_soon, replace(SOON, scores=course(0.9, 0.4, 0.1, 0.05, 0.03))),
    (too_good_too_soon, replace(SOON, scores=course(2.31, 0.4, 0.1, 0.01, entropy=0.1))),
    (too_good_too_soon, replace(SOON, resumed=True)),
    (too_good_too_soon, replace(SOON, per_epoch=1)),
    (too_good_too_soon, replace(LEAK, column=-1)),
    (too_good_too_soon, replace(LEAK, counts=(31, 1), features=1000)),
    (too_good_too_soon, replace(LEAK, counts=(32,))),
    (too_good_too_soon, replace(LEAK, telling=20)),
]


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (replace(NAN, bad_input="batch[0]", bad_batch=7, size=1, precision="16-mixed"), "batch[0] of this batch"),
        (replace(NAN, ignored=True, size=1), "every label is ignored"),
        (replace(NAN, size=0, usual=16), "a batch without samples"),
        (replace(NAN, size=1, usual=1), "cause unknown"),
        (replace(NAN, size=1, usual=32, hazards=("log of a softmax",)), "a batch of one sample"),
        (replace(NAN, precision="16-mixed", hazards=("log of a sigmoid",)), "log of a sigmoid"),
        (replace(NAN, precision="bf16-mixed"), "cause unknown"),
        (replace(NAN, earlier=()), "cause unknown"),
    ],
)
def test_the_likeliest_cause_is_told(seen: LossFinite, cause: str) -> None:
    (alert,) = non_finite_loss(seen)
    assert isinstance(alert, Alert)
    assert cause in alert.message


def test_a_loss_that_recovers_is_a_warning() -> None:
    severities = [next(iter(non_finite_loss(s))).severity for s in (NAN, replace(NAN, recovered=True))]  # type: ignore[union-attr]
    assert severities == [Severity.ERROR, Severity.WARNING]


def test_a_spike_names_its_batch() -> None:
    (alert,) = loss_spike(SPIKE)
    assert isinstance(alert, Alert)
    assert dict(alert.evidence)["batch"] == 40


def test_who_clips_already_is_told_to_clip_to_less() -> None:
    hints = [next(iter(loss_spike(s))).hint for s in (SPIKE, replace(SPIKE, clipped=True))]  # type: ignore[union-attr]
    assert ["gradient_clip_val=1.0" in h for h in hints] == [True, False]


@pytest.mark.parametrize(
    ("after", "severity"),
    [
        ((8.0, 7.0, 6.5, 6.0, 6.2, 5.0, 4.0, 3.5), Severity.INFO),
        ((8.0, 7.0, 6.5, 6.0, 6.2, 1.0, 0.9, 0.8), Severity.WARNING),
        ((14.0, *(9.0,) * 7), Severity.WARNING),
        ((*(9.0,) * 7, math.nan), Severity.WARNING),
    ],
    ids=["new level", "recovers", "broken weights", "not finite"],
)
def test_a_loss_that_stays_at_its_new_level_is_no_spike(after: tuple[float, ...], severity: Severity) -> None:
    (alert,) = loss_spike(replace(SPIKE, values=(*(0.5,) * 40, 9.0, *after)))
    assert isinstance(alert, Alert)
    assert alert.severity is severity


def test_each_loss_is_judged_once_and_none_is_left_out() -> None:
    values = [0.5] * 90
    values[41], values[89] = 9.0, 50.0
    found, shown = [], 0
    for until in (22, 35, 56, 57, 90):
        seen = Losses(values=tuple(values[:until]), last=until - 1, fresh=until - shown, over=until == 90)
        found += [dict(a.evidence)["batch"] for a in loss_spike(seen) if isinstance(a, Alert)]
        shown = until
    assert found == [41, 89]


@pytest.mark.parametrize(
    "seen",
    [replace(FLAT, rising=True), replace(FLAT, rate=0.0), replace(FLAT, scores=FLAT.scores[:3])],
    ids=["warm-up", "no rate", "too early"],
)
def test_a_run_that_has_not_settled_is_skipped(seen: Learning) -> None:
    (found,) = stuck_at_chance(seen)
    assert isinstance(found, Skip)
