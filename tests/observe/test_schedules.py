"""Schedules as real schedulers and real runs show them."""

import functools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim import lr_scheduler as lrs

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.schedules import schedule_counts_epochs
from sanity_watchdog.evidence.schedules import SchedulePlans
from sanity_watchdog.observe.curves import provable, shape
from sanity_watchdog.observe.plans import Source, course, horizon, plan, source
from sanity_watchdog.observe.run import Run, Schedule
from tests.runs import Classifier, Manual, assert_awake, codes, watched

CALLS: list[int] = []
WARMUP = 500


def linear_warmup(step: int, *, warmup: int, total: int) -> float:
    if step < warmup:
        return float(step) / float(max(1, warmup))
    return max(0.0, float(total - step) / float(max(1, total - warmup)))


class Holder:
    warmup_of_class = 7

    def __init__(self) -> None:
        self.warmup = 300
        self.items = [1, 2]

    def __call__(self, step: int) -> float:
        return min(1.0, step / self.warmup)

    def remember(self, step: int) -> float:
        self.warmup += 1
        return 1.0


def closure(value: Any) -> Any:
    return lambda step: min(1.0, step / value)


def attribute(held: Any) -> Any:
    return lambda step: min(1.0, step / held.warmup)


def counting() -> Any:
    count = 0

    def rate(step: int) -> float:
        nonlocal count
        count += 1
        return 1.0 / count

    return rate


def used(value: Any) -> Any:
    return lambda step: value(step)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda s: min(1.0, s / 500), id="constant"),
        pytest.param(lambda s: 0.5 * (1 + math.cos(math.pi * s / 100)), id="cosine"),
        pytest.param(lambda s: min(1.0, s / WARMUP), id="global-number"),
        pytest.param(closure(20), id="closure"),
        pytest.param(attribute(Holder()), id="attribute"),
        pytest.param(functools.partial(linear_warmup, warmup=10, total=100), id="partial"),
        pytest.param(used(closure(4)), id="nested"),
    ],
)
def test_functions_of_numbers_are_evaluated(function: Any) -> None:
    assert provable(function)
    assert shape(function, 0) is not None


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(counting(), id="counts"),
        pytest.param(lambda s: CALLS.append(s) or 1.0, id="appends"),
        pytest.param(lambda s: float(torch.rand(1)), id="random"),
        pytest.param(lambda s: print(s) or 1.0, id="prints"),
        pytest.param(Holder(), id="callable-object"),
        pytest.param(Holder().remember, id="method"),
        pytest.param(used(Holder()), id="calls-an-object"),
        pytest.param(lambda s: Holder().warmup, id="makes-an-object"),
        pytest.param(functools.partial(linear_warmup, warmup=Holder(), total=1), id="partial-of-an-object"),
        pytest.param(used(iter([1.0]).__next__), id="iterator"),
    ],
)
def test_functions_that_may_do_more_are_not_called(function: Any) -> None:
    assert not provable(function)
    assert CALLS == []


@pytest.mark.parametrize(
    ("function", "peak", "length", "start"),
    [
        pytest.param(lambda s: min(1.0, s / 4000), 4000, None, 0.0, id="warm-up"),
        pytest.param(functools.partial(linear_warmup, warmup=37, total=1000), 37, 1000, 0.0, id="warm-up-and-decay"),
        pytest.param(lambda s: min((s + 1) ** -0.5, (s + 1) * 900**-1.5), 899, None, 1 / 900, id="inverse-root"),
        pytest.param(lambda s: max(0.0, 1 - s / 640), 0, 640, 1.0, id="decay"),
        pytest.param(lambda s: (1 - s / 640) ** 0.9, 0, 640, 1.0, id="complex-beyond-its-end"),
        pytest.param(lambda s: 0.95**s, 0, 135, 1.0, id="exponential"),
        pytest.param(lambda s: 1.0, 0, None, 1.0, id="constant"),
    ],
)
def test_the_shape_of_a_curve(function: Any, peak: int, length: int | None, start: float) -> None:
    found = shape(function, 0)
    assert found is not None
    assert abs(found.peak - peak) <= 1
    assert (found.length is None) == (length is None)
    assert length is None or abs(found.length - length) <= 0.01 * length  # type: ignore[operator]
    assert found.start == pytest.approx(start, abs=1e-3)


@pytest.mark.parametrize("function", [lambda s: s[0], lambda s: math.nan, lambda s: 0.0], ids=["raises", "nan", "off"])
def test_a_curve_that_is_never_positive_has_no_shape(function: Any) -> None:
    assert shape(function, 0) is None


def optimizer() -> SGD:
    return SGD([nn.Parameter(torch.zeros(1))], lr=0.1)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda o: lrs.OneCycleLR(o, 0.1, total_steps=120), (35, 120, 0.04), id="one-cycle"),
        pytest.param(lambda o: lrs.LinearLR(o, 0.01, 1.0, 1000), (1000, None, 0.01), id="linear-up"),
        pytest.param(lambda o: lrs.LinearLR(o, 1.0, 0.01, 1000), (None, 1000, 1.0), id="linear-down"),
        pytest.param(lambda o: lrs.CosineAnnealingLR(o, 700), (None, 700, 1.0), id="cosine"),
        pytest.param(lambda o: lrs.PolynomialLR(o, 70), (None, 70, 1.0), id="polynomial"),
        pytest.param(
            lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.01, 1.0, 200), lrs.CosineAnnealingLR(o, 800)], [200]),
            (200, 1000, 0.01),
            id="sequence",
        ),
        pytest.param(
            lambda o: lrs.ChainedScheduler([lrs.LinearLR(o, 0.01, 1.0, 200), lrs.CosineAnnealingLR(o, 800)]),
            (200, 800, 0.01),
            id="chain",
        ),
        pytest.param(lambda o: lrs.StepLR(o, 30), (None, None, 1.0), id="steps"),
        pytest.param(lambda o: lrs.ReduceLROnPlateau(o), (None, None, 1.0), id="plateau"),
        pytest.param(lambda o: lrs.LambdaLR(o, Holder()), (None, None, 1.0), id="object"),
    ],
)
def test_the_course_of_a_scheduler(make: Any, expected: tuple[int | None, int | None, float]) -> None:
    warmup, length, start = course(make(optimizer()))
    assert (warmup, length) == expected[:2]
    assert start == pytest.approx(expected[2])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_epochs": 12, "batches_per_epoch": 300, "accumulate": 2}, (12, 1800)),
        ({"max_epochs": -1, "max_steps": 40, "batches_per_epoch": 64}, (1, 40)),
        ({"max_epochs": 5, "max_steps": 40}, (5, 40)),
        ({"max_epochs": -1}, (math.inf, math.inf)),
        ({"max_epochs": 0, "batches_per_epoch": 10}, (0, 0)),
    ],
)
def test_the_horizon_of_a_run(given: dict[str, Any], expected: tuple[float, float]) -> None:
    assert horizon(Run(module=nn.Identity(), **given)) == expected


def warm(o: Any, *others: Any, at: int = 5) -> Any:
    return lrs.SequentialLR(o, [lrs.LinearLR(o, 0.1, 1.0, at), *others], [at])


def chain(o: Any, *others: Any) -> Any:
    return lrs.ChainedScheduler([lrs.LinearLR(o, 0.1, 1.0, 5), *others])


def half_cosine(s: int, ends: int = 50, warmup: int = 0, floor: float = 0.0) -> float:
    if s < warmup:
        return s / warmup
    return max(floor, 0.5 * (1 + math.cos(math.pi * (s - warmup) / (ends - warmup))))


BY_EPOCHS = [
    pytest.param(lambda o: lrs.CosineAnnealingLR(o, 50), True, id="cosine"),
    pytest.param(lambda o: warm(o, lrs.CosineAnnealingLR(o, 45)), True, id="cosine-after-warm-up"),
    pytest.param(lambda o: warm(o, lrs.CosineAnnealingLR(o, 50)), True, id="cosine-of-all-epochs-after-warm-up"),
    pytest.param(lambda o: chain(o, lrs.CosineAnnealingLR(o, 50)), True, id="cosine-in-a-chain"),
    pytest.param(lambda o: lrs.LambdaLR(o, half_cosine), True, id="cosine-by-hand"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: half_cosine(s, warmup=5)), True, id="cosine-by-hand-warmed-up"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: half_cosine(s, floor=0.01)), True, id="cosine-by-hand-floor"),
    pytest.param(lambda o: warm(o, lrs.MultiStepLR(o, [30, 40])), False, id="milestones-after-warm-up"),
    pytest.param(lambda o: chain(o, lrs.MultiStepLR(o, [30, 40])), False, id="milestones-in-a-chain"),
    pytest.param(lambda o: warm(o, lrs.ExponentialLR(o, 0.9)), False, id="exponential-after-warm-up"),
    pytest.param(lambda o: chain(o, lrs.StepLR(o, 10)), False, id="distances-in-a-chain"),
    pytest.param(lambda o: lrs.PolynomialLR(o, 50), False, id="polynomial"),
    pytest.param(lambda o: lrs.LinearLR(o, 1.0, 0.0, 50), False, id="linear"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: 1 - s / 50), False, id="linear-by-hand"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: max(0.0, 1 - s / 50)), False, id="linear-by-hand-to-zero"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: 0.93**s), False, id="exponential-by-hand"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: 0.1 ** (s // 15)), False, id="distances-by-hand"),
]
BY_STEPS = [
    pytest.param(lambda o: lrs.CosineAnnealingLR(o, 5000), id="cosine"),
    pytest.param(lambda o: warm(o, lrs.CosineAnnealingLR(o, 4500), at=500), id="cosine-after-warm-up"),
    pytest.param(lambda o: warm(o, lrs.CosineAnnealingLR(o, 4500), at=50), id="warm-up-of-as-many-steps-as-epochs"),
    pytest.param(lambda o: lrs.CosineAnnealingWarmRestarts(o, 50), id="restarts"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: half_cosine(s % 51)), id="restarts-by-hand"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: half_cosine(s, ends=5000)), id="cosine-by-hand"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: min(1.0, (s + 1) / 50)), id="warm-up-alone"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: (1 + s) ** -0.5), id="inverse-root"),
    pytest.param(lambda o: lrs.LambdaLR(o, lambda s: 0.9995**s), id="exponential-by-hand"),
    pytest.param(lambda o: lrs.ExponentialLR(o, 0.9995), id="exponential"),
    pytest.param(lambda o: chain(o, lrs.MultiStepLR(o, [3000, 4000])), id="milestones-in-a-chain"),
    pytest.param(lambda o: lrs.LinearLR(o, 1.0, 0.1, 50), id="linear-to-a-tenth"),
    pytest.param(lambda o: lrs.PolynomialLR(o, 5000), id="polynomial"),
    pytest.param(lambda o: lrs.CyclicLR(o, 0.01, 0.1, 50), id="cycles"),
]


def findings(make: Any, interval: str) -> list[Any]:
    run = Run(module=nn.Identity(), max_epochs=50, batches_per_epoch=100)
    plans = (plan(run, Schedule(make(optimizer()), interval=interval), Source()),)
    return list(schedule_counts_epochs(SchedulePlans(plans=plans)))


@pytest.mark.parametrize(("make", "cosine"), BY_EPOCHS)
def test_a_schedule_by_epochs_that_advances_at_every_step_is_told(make: Any, cosine: bool) -> None:
    (found,) = findings(make, "step")
    assert found.severity is Severity.WARNING
    assert ("cosine over the 50 epochs" in found.message) == cosine
    assert not findings(make, "epoch")


@pytest.mark.parametrize("make", BY_STEPS)
def test_a_schedule_by_steps_that_advances_at_every_step_is_quiet(make: Any) -> None:
    assert not findings(make, "step")


def test_an_endless_run_has_endless_advances() -> None:
    scheduler = lrs.StepLR(optimizer(), 3)
    assert plan(Run(module=nn.Identity()), Schedule(scheduler), Source()).advances == math.inf


class Scheduled(Classifier):
    """Plain SGD under the scheduler that ``make`` gives."""

    def __init__(self, make: Any, interval: str | None = None) -> None:
        super().__init__()
        self.make, self.interval = make, interval

    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), lr=1e-2)
        scheduler = self.make(optimizer)
        if self.interval is None:
            return [optimizer], [scheduler]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class Misplaced(Scheduled):
    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), lr=1e-2)
        return {"optimizer": optimizer, "lr_scheduler": self.make(optimizer), "interval": "step"}


class MisplacedByCall(Scheduled):
    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), lr=1e-2)
        return dict(optimizer=optimizer, lr_scheduler=self.make(optimizer), interval="step")  # noqa: C408


@pytest.mark.parametrize("module", [Misplaced, MisplacedByCall])
def test_a_key_beside_the_scheduler_is_found_in_the_source(module: type[Scheduled]) -> None:
    found = source(module(None))
    assert found.misplaced == ("interval",)
    assert found.where.partition(":")[0].endswith("test_schedules.py")


def test_keys_in_their_place_are_not_misplaced() -> None:
    assert source(Scheduled(None, "step")).misplaced == ()


def by_lambda(function: Any) -> Any:
    return lambda o: lrs.LambdaLR(o, function)


def test_a_rate_of_zero_is_told_within_three_steps() -> None:
    dog = watched(Classifier(optimizer=SGD, lr=0), max_steps=4)
    assert "WD501" in codes(dog, Severity.ERROR)
    (alert,) = (a for a in dog.alerts if a.code == "WD501")
    assert alert.step == 2
    assert_awake(dog)


@pytest.mark.parametrize(("factor", "told"), [(1e-3, True), (0.5, False)], ids=["fires-gone", "quiet-small"])
def test_a_rate_that_shrinks_to_nothing_counts_as_zero(factor: float, told: bool) -> None:
    dog = watched(Scheduled(lambda o: lrs.ExponentialLR(o, factor), "step"), max_steps=22)
    assert ("WD501" in codes(dog)) == told
    assert_awake(dog)


def test_a_short_fit_at_rate_zero_is_told_at_its_end() -> None:
    assert "WD501" in codes(watched(Classifier(optimizer=SGD, lr=0), max_steps=2))


@pytest.mark.parametrize("rate", [torch.tensor(0.0), torch.tensor(1e-3)], ids=["zero", "live"])
def test_a_rate_in_a_tensor_is_read_on_the_host(rate: torch.Tensor) -> None:
    dog = watched(Classifier(optimizer=functools.partial(AdamW, foreach=False), lr=rate), max_steps=4)
    assert ("WD501" in codes(dog)) == (float(rate) == 0)
    assert "WD501" in dog.summary.judged


def test_a_warm_up_in_steps_that_counts_epochs_is_one_alert_before_training() -> None:
    dog = watched(Scheduled(by_lambda(lambda s: min(1.0, s / 4000))), max_steps=-1, max_epochs=2)
    assert codes(dog)[0] == "WD502"
    assert "WD501" not in codes(dog)
    alert = dog.alerts[0]
    assert alert.step == 0
    assert alert.message == "warm-up of 4,000 steps, but it advances once per epoch: 2 times in this run"
    assert alert.where.partition(":")[0].endswith("test_schedules.py")


@pytest.mark.parametrize(
    ("module", "code"),
    [
        pytest.param(
            Misplaced(lambda o: lrs.OneCycleLR(o, 1e-2, total_steps=16)), "WD502", id="fires-key-in-the-wrong-place"
        ),
        pytest.param(
            Scheduled(lambda o: lrs.OneCycleLR(o, 1e-2, total_steps=16), "epoch"), "WD502", id="fires-one-cycle"
        ),
        pytest.param(Scheduled(lambda o: lrs.CosineAnnealingLR(o, 16)), "WD502", id="fires-cosine"),
        pytest.param(Scheduled(lambda o: lrs.OneCycleLR(o, 1e-2, total_steps=16), "step"), "", id="quiet-one-cycle"),
        pytest.param(Scheduled(by_lambda(lambda s: min(1.0, s / 4)), "step"), "", id="quiet-warm-up-from-zero"),
        pytest.param(Scheduled(lambda o: lrs.CosineAnnealingLR(o, 100)), "", id="quiet-cut-short"),
        pytest.param(Scheduled(by_lambda(lambda e: 0.95**e)), "", id="quiet-decay-by-epochs"),
        pytest.param(Scheduled(lambda o: lrs.StepLR(o, 1)), "", id="quiet-steps-by-epochs"),
        pytest.param(Scheduled(lambda o: lrs.LinearLR(o, 0.1, 1.0, 5)), "", id="quiet-warm-up-by-epochs"),
        pytest.param(
            Scheduled(lambda o: lrs.SequentialLR(o, [lrs.LinearLR(o, 0.1), lrs.ExponentialLR(o, 0.9)], [5]), "step"),
            "",
            id="quiet-sequence",
        ),
    ],
)
def test_schedules_in_real_runs(module: Scheduled, code: str) -> None:
    dog = watched(module, max_steps=-1, max_epochs=2)
    found = [c for c in codes(dog) if c in ("WD501", "WD502", "WD503")]
    assert found == ([code] if code else [])
    assert {"WD501", "WD502", "WD503"} <= set(dog.summary.judged)


class Overruled(Scheduled):
    """Somebody else assigns the rate at each step."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        for group in self.optimizers().param_groups:
            group["lr"] = self.given(self.trainer.global_step)

    given = staticmethod(lambda step: 3e-3)


class WarmedByHand(Overruled):
    given = staticmethod(lambda step: 1e-2 * min(1.0, (step + 1) / 1000))


def test_an_overruled_schedule_is_told() -> None:
    dog = watched(Overruled(lambda o: lrs.ExponentialLR(o, 0.9), "step"), max_steps=60, max_epochs=-1)
    assert "WD503" in codes(dog)


def test_a_warm_up_by_hand_beside_a_schedule_is_quiet() -> None:
    dog = watched(WarmedByHand(lambda o: lrs.ExponentialLR(o, 0.9), "step"), max_steps=60, max_epochs=-1)
    assert "WD503" in dog.summary.judged
    assert not {"WD501", "WD502", "WD503"} & set(codes(dog))


class ManualSchedule(Manual):
    """Advances its schedule by hand at each step."""

    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [lrs.OneCycleLR(optimizer, 1e-2, total_steps=16)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self.lr_schedulers().step()


class Written(Classifier):
    def __init__(self, interval: str) -> None:
        super().__init__(optimizer=SGD, lr=0.1)
        self.interval = interval

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = lrs.CosineAnnealingLR(optimizer, 16)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


@pytest.mark.parametrize(
    ("interval", "settings", "found"),
    [
        pytest.param("epoch", {"max_epochs": 2}, ["WD502"], id="fires-a-number-of-steps"),
        pytest.param("epoch", {"max_epochs": 4, "limit_train_batches": 4}, [], id="quiet-a-number-in-a-run-cut-short"),
        pytest.param("step", {"max_epochs": 16}, [], id="quiet-cycles-of-two-epochs"),
    ],
)
def test_a_number_in_the_source_may_be_one_by_chance(interval: str, settings: dict[str, Any], found: list[str]) -> None:
    dog = watched(Written(interval), max_steps=-1, **settings)
    assert codes(dog) == found
    assert all(a.severity is Severity.WARNING for a in dog.alerts if a.code == "WD502")
    assert "WD502" in dog.summary.judged


def test_a_schedule_that_is_advanced_by_hand_is_not_judged_by_its_interval() -> None:
    dog = watched(ManualSchedule(), max_steps=-1, max_epochs=2)
    assert not {"WD501", "WD502", "WD503"} & set(codes(dog))
    assert dog.summary.skipped["WD502"] == "schedules are advanced by hand"
