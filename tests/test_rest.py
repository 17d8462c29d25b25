"""Steps at rest: nobody is told of them, nothing is missed, and everything is put back."""

import copy
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.observe.stall import StallObserver
from sanity_watchdog.records import read
from sanity_watchdog.steps import AT_REST, StepHooks

from .outcomes import assert_same, outcome
from .runs import Classifier, Manual, assert_awake, blobs, loader, step_by_hand, trainer

STEPS = 150
RESTING = [*range(64, 101), *range(104, STEPS)]
"""Batches of one long epoch that are at rest."""


def data(batches: int = 200) -> Any:
    torch.manual_seed(0)
    return loader(*blobs(8 * batches), batch_size=8)


class Noted(L.Callback):
    """The batches at which the watchdog is at rest."""

    def __init__(self, dog: SanityWatchdog) -> None:
        self.dog = dog
        self.batches: list[int] = []

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        if self.dog._row is not None:
            assert all(name in vars(self.dog) for name in AT_REST)
            self.batches.append(trainer.fit_loop.total_batch_idx)


def resting(
    dog: SanityWatchdog, module: Callable[[], L.LightningModule] = Classifier, batches: int = 200, **settings: Any
) -> list[int]:
    """The batches at rest of a run that ends as it does without us."""
    noted = Noted(dog)
    more = settings.pop("callbacks", [])
    kwargs: dict[str, Any] = {"max_steps": STEPS, "max_epochs": -1, "limit_val_batches": 0, **settings}
    plain = outcome(None, module, lambda: data(batches), callbacks=[*more], **kwargs)
    assert_same(outcome(dog, module, lambda: data(batches), callbacks=[*more, noted], **kwargs), plain)
    assert dog._row is None
    assert not any(name in vars(dog) for name in AT_REST)
    return noted.batches


def test_steps_between_samples_of_a_settled_run_are_at_rest() -> None:
    dog = SanityWatchdog(fail_on=None)
    assert resting(dog) == RESTING
    assert_awake(dog, 20)
    assert (dog.summary.batches, dog.summary.attempts) == (STEPS, STEPS)


def test_rest_goes_on_across_epochs() -> None:
    assert resting(SanityWatchdog(fail_on=None), batches=7) == RESTING
    assert resting(SanityWatchdog(fail_on=None), batches=1) == RESTING


def test_the_first_epochs_are_told() -> None:
    assert resting(SanityWatchdog(fail_on=None), batches=22) == [n for n in RESTING if n % 22 or n >= 4 * 22]


class Many(Classifier):
    """A network of which each batch of a run can do something else."""

    at = 90
    seen = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen += 1
        if self.seen <= self.at:
            return super().training_step(batch, batch_idx)
        return self.other(batch, batch_idx)

    def other(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx)

    def rate(self, value: float) -> None:
        self.trainer.optimizers[0].param_groups[0]["lr"] = value


class NotFinite(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        return super().other(batch, batch_idx) + (float("nan") if self.seen == 91 else 0)


class BadInput(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        if self.seen == 91:
            x[0, 0] = float("inf")
        return super().other((x.nan_to_num(), y), batch_idx) + 0 * x.sum()


class Spike(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        return super().other(batch, batch_idx) * (1e6 if self.seen == 95 else 1)


class NoLoss(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        return None if self.seen in (91, 92, 120) else super().other(batch, batch_idx)


class Raises(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        raise RuntimeError("of the user's own")


class BadLabel(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return super().other((x, torch.where(y == y[0], 99, y)), batch_idx)


class ByHand(Manual):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = Classifier.training_step(self, batch, batch_idx)
        step_by_hand(self, loss)
        return loss.detach()


class Stops(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        self.trainer.should_stop = True
        return super().other(batch, batch_idx)


class Interrupted(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        signal.default_int_handler(signal.SIGINT, None)


class NoRate(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        self.rate(0.0)
        return super().other(batch, batch_idx)


class Decays(Many):
    def configure_optimizers(self) -> Any:
        optimizer: Any = super().configure_optimizers()
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class DecaysByEpochs(Many):
    def configure_optimizers(self) -> Any:
        optimizer: Any = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


class Overwrites(Decays):
    def other(self, batch: Any, batch_idx: int) -> Any:
        self.rate(1e-4)
        return super().other(batch, batch_idx)


class Changes(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        self.rate(1e-3 * (1 + self.seen % 3))
        return super().other(batch, batch_idx)


class StrangeRate(Many):
    def other(self, batch: Any, batch_idx: int) -> Any:
        self.rate(torch.tensor([1e-3, 1e-3]))  # type: ignore[arg-type]
        return super().other(batch, batch_idx)


class Twice(Classifier):
    """Steps by closures, several times a batch."""

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=1e-3, max_iter=2)


CASES: dict[str, tuple[type[L.LightningModule], dict[str, Any]]] = {
    "healthy": (Classifier, {}),
    "short epochs": (Classifier, {"batches": 7}),
    "epochs of one batch": (Classifier, {"batches": 1}),
    "accumulating over short epochs": (Classifier, {"batches": 7, "accumulate_grad_batches": 3, "max_steps": 120}),
    "validating after each short epoch": (Classifier, {"batches": 7, "limit_val_batches": 1}),
    "decays by short epochs": (DecaysByEpochs, {"batches": 7}),
    "decays by epochs of one batch": (DecaysByEpochs, {"batches": 1}),
    "by hand in short epochs": (ByHand, {"batches": 7}),
    "spike in short epochs": (Spike, {"batches": 7}),
    "raises in short epochs": (Raises, {"batches": 7}),
    "no rate in short epochs": (NoRate, {"batches": 7}),
    "accumulating": (Classifier, {"accumulate_grad_batches": 3, "max_steps": 120}),
    "validating": (Classifier, {"limit_val_batches": 2, "val_check_interval": 45}),
    "by hand": (ByHand, {}),
    "closures": (Twice, {"max_steps": 120}),
    "not finite": (NotFinite, {}),
    "bad input": (BadInput, {}),
    "spike": (Spike, {}),
    "no loss": (NoLoss, {}),
    "raises": (Raises, {}),
    "bad label": (BadLabel, {}),
    "stops": (Stops, {}),
    "interrupted": (Interrupted, {}),
    "no rate": (NoRate, {}),
    "decays": (Decays, {}),
    "overwrites": (Overwrites, {}),
    "changes": (Changes, {}),
}


def known(module: type[L.LightningModule], folder: Path, settings: dict[str, Any]) -> tuple[Any, list[int]]:
    """All that a run leaves in the record, without times and settings, and the batches at rest."""
    dog = SanityWatchdog(fail_on=None, record=folder)
    found = resting(dog, module, **settings)
    assert not dog.summary.broken
    lines = [
        {name: value for name, value in record.items() if name not in ("started", "time", "directory", "record")}
        for record in read(folder / "watchdog.jsonl").records
        if record["type"] != "run"
    ]
    return lines, found


@pytest.mark.parametrize("case", CASES)
def test_rest_changes_nothing_of_what_is_known(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, settings = CASES[case]
    (tmp_path / "rest").mkdir()
    (tmp_path / "told").mkdir()
    rested, at_rest = known(module, tmp_path / "rest", settings)
    monkeypatch.setattr(StepHooks, "_rest", lambda self, watch: None)
    told, none = known(module, tmp_path / "told", settings)
    assert rested == told
    assert len(at_rest) >= 20
    assert not none


def test_a_rate_that_cannot_be_compared_is_the_optimizers_affair() -> None:
    assert resting(SanityWatchdog(fail_on=None), StrangeRate)


def test_a_fault_at_rest_stops_the_run_as_it_would_be_stopped_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> tuple[str, int]:
        dog = SanityWatchdog(fail_on="warning")
        found = outcome(dog, NoRate, data, max_steps=STEPS, limit_val_batches=0)
        return found.error, dog.summary.batches

    error, batches = stopped()
    assert "SanityCheckFailed" in error
    assert "WD501" in error
    monkeypatch.setattr(StepHooks, "_rest", lambda self, watch: None)
    assert stopped() == (error, batches)


class Counts(TorchFunctionMode):
    """A mode of the user's own."""

    seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        type(self).seen += 1
        return func(*args, **(kwargs or {}))


def test_a_users_mode_sees_nothing_of_us() -> None:
    class Entered(L.Callback):
        def on_train_start(self, *_: Any) -> None:
            self.mode = Counts()
            self.mode.__enter__()

        def on_train_end(self, *_: Any) -> None:
            self.mode.__exit__(None, None, None)

    counts = []
    for dogs in ([SanityWatchdog(fail_on=None)], []):
        Counts.seen = 0
        outcome(None, data=data, callbacks=[Entered(), *dogs], max_steps=80, limit_val_batches=0)
        counts.append(Counts.seen)
    assert counts[0] == counts[1] > 80


@pytest.mark.parametrize("name", AT_REST)
def test_hooks_of_a_users_own_are_called_at_every_step(name: str) -> None:
    calls = []

    def hook(self: Any, *args: Any) -> None:
        calls.append(name)
        getattr(SanityWatchdog, name)(self, *args)

    dog = type("Own", (SanityWatchdog,), {name: hook})(fail_on=None)
    assert not resting(dog, max_steps=80)
    assert len(calls) == 80


def test_an_attribute_of_a_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, calls = SanityWatchdog(fail_on=None), []
    vars(dog)["on_before_zero_grad"] = own = lambda *_: calls.append(0)
    outcome(dog, data=data, max_steps=80, limit_val_batches=0)
    assert len(calls) == 80
    assert vars(dog)["on_before_zero_grad"] is own


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda dog: pickle.loads(pickle.dumps(dog))])
def test_a_copy_made_at_rest_is_a_whole_one(copied: Callable[[SanityWatchdog], SanityWatchdog]) -> None:
    copies: list[SanityWatchdog] = []
    dog = SanityWatchdog(fail_on=None)

    class Copies(L.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            if dog._row is not None and not copies:
                copies.append(copied(dog))

    resting(dog, callbacks=[Copies()])
    (one,) = copies
    assert resting(one) == RESTING
    assert_awake(one, 20)


class CallsHooks(Classifier):
    """Hands a moment to all callbacks itself."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            callback.on_before_zero_grad(self.trainer, self, None)
            callback.on_after_backward(self.trainer, self)
            callback.on_train_batch_start(self.trainer, self, batch, batch_idx)
        return super().training_step(batch, batch_idx)


def test_hooks_that_the_user_calls_are_there_at_rest() -> None:
    assert len(resting(SanityWatchdog(fail_on=None), CallsHooks, max_steps=80)) >= 10


@pytest.mark.parametrize("where", ["batch", "step"])
def test_a_second_fit_of_the_same_callback_within_a_batch_at_rest(where: str) -> None:
    dog = SanityWatchdog(fail_on=None)

    class Within(Classifier):
        done = False

        def again(self) -> None:
            if dog._row is not None and not self.done:
                self.done = True
                state = torch.get_rng_state()
                trainer(dog, max_steps=20).fit(Classifier(), data(20))
                torch.set_rng_state(state)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if where == "batch":
                self.again()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if where == "step":
                self.again()
            return super().training_step(batch, batch_idx)

    outcome(dog, Within, data, max_steps=STEPS, limit_val_batches=0)
    assert (dog.summary.batches, dog.verdict) == (20, "pass")
    assert not any(name in vars(dog) for name in AT_REST)
    assert resting(dog) == RESTING


@pytest.mark.parametrize("until", [80, 110])
def test_a_wrapper_that_is_put_over_a_hook_at_rest_stays_until_it_is_taken_away(until: int) -> None:
    dog, calls = SanityWatchdog(fail_on=None), []

    class Wraps(L.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 70:
                self.real = dog.on_train_batch_end
                dog.on_train_batch_end = self.wrapper  # type: ignore[method-assign]
            elif batch_idx == until:
                dog.on_train_batch_end = self.real  # type: ignore[method-assign]

        def wrapper(self, *args: Any) -> None:
            calls.append(args[-1])
            self.real(*args)

    outcome(dog, data=data, callbacks=[Wraps()], max_steps=STEPS, limit_val_batches=0)
    assert calls == list(range(70, until))
    assert_awake(dog, 20)
    assert (dog.summary.batches, dog.summary.attempts) == (STEPS, STEPS)


def test_a_watchdog_within_another_callback_works() -> None:
    dog = SanityWatchdog(fail_on=None)

    class Composite(L.Callback):
        def __getattribute__(self, name: str) -> Any:
            return (
                getattr(dog, name) if name.startswith(("on_", "setup", "teardown")) else super().__getattribute__(name)
            )

    outcome(None, data=data, callbacks=[Composite()], max_steps=80, limit_val_batches=0)
    assert_awake(dog, 20)
    assert dog.summary.batches == 80


def test_the_timer_beside_the_run_knows_when_the_last_batch_at_rest_ended() -> None:
    observer = StallObserver()
    observer._beat, row = 1.0, SimpleNamespace(ends=[2.0, 4.0, 8.0], losses=[0.0] * 3, steps=3)
    assert observer.may_rest(SimpleNamespace(), row)  # type: ignore[arg-type]
    assert observer.beat() == 8.0
    observer.rested(SimpleNamespace(), 0, row)  # type: ignore[arg-type]
    assert observer.beat() == 8.0
    assert list(observer._seconds) == [1.0, 2.0, 4.0]
