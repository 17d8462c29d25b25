from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.schedules import overwritten_learning_rate, schedule_counts_epochs, zero_learning_rate
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.schedules import Followed, LearningRates, Plan, Rates, SchedulePlans, SchedulesFollowed

INF = float("inf")
ZERO = Rates(index=0, rate=0.0, largest=0.0, zeros=3, attempts=3)
EPOCHS = Rates(index=0, rate=0.0, largest=0.0, zeros=8, attempts=8, schedule="LambdaLR", patience=20, interval="epoch")
STEPS = replace(EPOCHS, interval="step", patience=1, zeros=1, attempts=1)
DECAYED = Rates(index=0, rate=0.0, largest=0.1, zeros=8, attempts=80, schedule="LinearLR", interval="step")
WARMUP = Plan(schedule="LambdaLR", interval="epoch", advances=12, steps=3600, warmup=4000, length=4000, start=0.0)
ONE_CYCLE = Plan(
    schedule="OneCycleLR", interval="epoch", advances=3, steps=120, warmup=36, length=120, strict=True, start=0.04
)
COSINE = Plan(schedule="CosineAnnealingLR", interval="epoch", advances=10, steps=5000, length=5000)
BRIEF = replace(COSINE, steps=300, length=300, literal=True)
ACCUMULATED = replace(COSINE, steps=1250, batches=5000)
SWINGS = Plan(schedule="CosineAnnealingLR", interval="step", advances=570, steps=570, epochs=10, turns=True)
RUSHES = replace(SWINGS, schedule="SequentialLR", turns=False, part="MultiStepLR", decay=8, left=1e-3)
FADES = replace(RUSHES, part="LambdaLR", decay=14, left=1e-12)
OVERRULED = Followed(index=0, schedule="StepLR", wanted=0.025, used=(0.1,), advances=3, apart=40)


def one(rates: Rates, **more: Any) -> LearningRates:
    return LearningRates(optimizers=(rates,), count=1, **more)


FIRING: list[tuple[Check[Any], Evidence]] = [
    (zero_learning_rate, one(ZERO)),
    (zero_learning_rate, one(EPOCHS)),
    (zero_learning_rate, one(replace(STEPS, zeros=8, attempts=8))),
    (zero_learning_rate, one(DECAYED)),
    (zero_learning_rate, one(replace(STEPS, zeros=2, attempts=2), ended=True)),
    (zero_learning_rate, LearningRates(optimizers=(replace(ZERO, index=1),), count=2)),
    (schedule_counts_epochs, SchedulePlans(plans=(WARMUP,))),
    (schedule_counts_epochs, SchedulePlans(plans=(ONE_CYCLE,))),
    (schedule_counts_epochs, SchedulePlans(plans=(COSINE,))),
    (schedule_counts_epochs, SchedulePlans(plans=(ACCUMULATED,))),
    (schedule_counts_epochs, SchedulePlans(plans=(BRIEF,))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(SWINGS, literal=True),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(COSINE, misplaced=("interval",), where="net.py:30"),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(WARMUP, advances=INF, steps=INF), COSINE))),
    (schedule_counts_epochs, SchedulePlans(plans=(SWINGS,))),
    (schedule_counts_epochs, SchedulePlans(plans=(RUSHES,))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, part="StepLR", decay=3, left=1e-190),))),
    (schedule_counts_epochs, SchedulePlans(plans=(FADES,))),
    (zero_learning_rate, one(replace(DECAYED, schedule="ExponentialLR", rate=3e-9))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(OVERRULED,))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(replace(OVERRULED, others=True),))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(), idle=("StepLR",), epochs=3, steps=120)),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (zero_learning_rate, one(replace(ZERO, zeros=1, attempts=1))),
    (zero_learning_rate, one(STEPS)),
    (zero_learning_rate, one(replace(STEPS, zeros=8, attempts=8, patience=8))),
    (zero_learning_rate, one(replace(ZERO, zeros=0, rate=0.1, largest=0.1, attempts=90))),
    (zero_learning_rate, one(replace(ZERO, zeros=1, attempts=1), ended=True)),
    (zero_learning_rate, one(replace(DECAYED, zeros=1), ended=True)),
    (schedule_counts_epochs, SchedulePlans(plans=())),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, interval="epoch"),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, decay=300),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, advances=60),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, left=0.5),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(RUSHES, part="StepLR", left=0.01),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(WARMUP, interval="step"),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(ONE_CYCLE, interval="step"),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(COSINE, interval="step", misplaced=("interval",)),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(COSINE, advances=2, steps=300, length=100),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(WARMUP, advances=1, steps=40, warmup=10, length=300),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(WARMUP, advances=800, steps=8e5, warmup=40, length=800),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(ONE_CYCLE, advances=120, steps=4800),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(COSINE, advances=10, steps=10, length=10),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(ONE_CYCLE, advances=60, steps=60),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(ACCUMULATED, length=90),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(BRIEF, limited=True),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(BRIEF, length=297),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(ONE_CYCLE, length=30),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(SWINGS, literal=True, epochs=50),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(FADES, decay=21),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(FADES, left=1e-3),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(FADES, decay=None),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(SWINGS, turns=False),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(SWINGS, interval="epoch"),))),
    (schedule_counts_epochs, SchedulePlans(plans=(replace(SWINGS, advances=70, steps=70),))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(replace(OVERRULED, used=(0.1, 0.2)),))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(replace(OVERRULED, advances=2),))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(replace(OVERRULED, apart=31),))),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(), idle=("StepLR",), epochs=1, steps=120)),
    (overwritten_learning_rate, SchedulesFollowed(schedules=(), idle=("StepLR",), epochs=3, steps=30)),
]


def only(check: Check[Any], seen: Evidence, **options: Any) -> Alert:
    (found,) = (f for f in check(seen, **options) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize(
    ("seen", "severity"),
    [
        pytest.param(one(ZERO), Severity.ERROR, id="fires-constant-zero"),
        pytest.param(one(DECAYED), Severity.WARNING, id="fires-decayed"),
        pytest.param(LearningRates(optimizers=(ZERO,), count=2), Severity.WARNING, id="fires-one-of-two"),
    ],
)
def test_how_bad_a_zero_rate_is(seen: LearningRates, severity: Severity) -> None:
    assert only(zero_learning_rate, seen).severity is severity


def test_patience_is_an_option() -> None:
    seen = one(replace(EPOCHS, zeros=4, attempts=9, largest=0.1))
    assert not list(zero_learning_rate(seen))
    assert list(zero_learning_rate(seen, patience=4))


def test_the_hint_follows_the_cause() -> None:
    assert "positive lr" in only(zero_learning_rate, one(ZERO)).hint
    assert "interval" in only(zero_learning_rate, one(EPOCHS)).hint


def test_a_warm_up_is_told_in_words() -> None:
    alert = only(schedule_counts_epochs, SchedulePlans(plans=(WARMUP,)))
    assert alert.message == "warm-up of 4,000 steps, but it advances once per epoch: 12 times in this run"
