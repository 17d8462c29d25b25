"""Batches without updates, and graphs that stay, in real runs."""

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from sanity_watchdog.observe.loop import mark
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, watched


class ReturnsNothing(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        super().training_step(batch, batch_idx)


class SkipsSome(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return super().training_step(batch, batch_idx) if batch_idx % 2 else None


class NeverSteps(Manual):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = Classifier.training_step(self, batch, batch_idx)
        self.manual_backward(loss)


class NeverStepsButClears(NeverSteps):
    def __init__(self, to_none: bool) -> None:
        super().__init__()
        self.to_none = to_none

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.optimizers().zero_grad(set_to_none=self.to_none)
        super().training_step(batch, batch_idx)


class OnlyLooks(Manual):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return Classifier.training_step(self, batch, batch_idx)


class ForgetsTheStep(Classifier):
    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        optimizer_closure()


class Plain(Manual):
    """Steps without going through Lightning at all."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.zero_grad()
        Classifier.training_step(self, batch, batch_idx).backward()
        optimizer.step()


class StepsPerEpoch(Manual):
    """Accumulates over each epoch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.manual_backward(Classifier.training_step(self, batch, batch_idx) / 20)

    def on_train_epoch_end(self) -> None:
        optimizer = self.optimizers()
        optimizer.step()
        optimizer.zero_grad()


class FillsFirst(Classifier):
    """Returns no loss before a buffer is full."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return None if self.trainer.current_epoch == 0 and batch_idx < 20 else loss


class StepsEvery(Manual):
    """Sums gradients up over so many batches, counted across epochs or within each."""

    def __init__(self, every: int, across: bool) -> None:
        super().__init__()
        self.every, self.across = every, across

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizer = self.optimizers()
        self.manual_backward(Classifier.training_step(self, batch, batch_idx) / self.every)
        seen = batch_idx + 20 * self.trainer.current_epoch if self.across else batch_idx
        if (seen + 1) % self.every == 0:
            optimizer.step()
            optimizer.zero_grad()


class WithoutOptimizer(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None

    def configure_optimizers(self) -> None:
        return None


class TwoPlayers(Manual):
    """Two optimizers, of which the second waits for some batches or for ever."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.waits = waits

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        first, second = self.optimizers()
        first.zero_grad()
        second.zero_grad()
        self.manual_backward(Classifier.training_step(self, batch, batch_idx))
        first.step()
        if batch_idx >= self.waits:
            second.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(layer.parameters(), 1e-3) for layer in (self.net[0], self.net[2])]


class IgnoresClosure(torch.optim.Optimizer):
    """As published optimizers often are: Lightning's closure is never called."""

    def __init__(self, parameters: Any, lr: float = 0.02) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in (p for group in self.param_groups for p in group["params"]):
            p -= 0.02 * p.grad / p.grad.norm().clamp_min(1e-7)


class OneIgnoresClosure(TwoPlayers):
    def configure_optimizers(self) -> Any:
        return IgnoresClosure(self.net[0].parameters()), torch.optim.Adam(self.net[2].parameters(), 1e-3)


def run(module: Classifier, epochs: int = 2, batches: int = 20, **kwargs: Any) -> Any:
    data = loader(*blobs(batches * 8), batch_size=8)
    return watched(module, data, max_steps=-1, max_epochs=epochs, **kwargs)


def test_one_of_two_optimizers_that_never_steps_is_told() -> None:
    (found,) = (a for a in run(TwoPlayers(99), 2).alerts if a.code == "WD506")
    assert found.severity is Severity.WARNING
    assert found.subjects == ("optimizer 1",)
    assert "WD506" not in codes(run(TwoPlayers(12), 2))


def test_one_that_ignores_its_closure_steps_all_the_same() -> None:
    assert "WD506" not in codes(run(OneIgnoresClosure(0), 2))
    assert "WD506" in codes(run(OneIgnoresClosure(99), 2))


def test_one_that_may_still_join_in_is_no_alarm() -> None:
    told: list[Severity] = []
    dog = SanityWatchdog(fail_on=None, on_alert=lambda alert: told.append(alert.severity))
    run(TwoPlayers(99), 8, watchdog=dog)
    assert told == [Severity.INFO]
    assert [a.severity for a in dog.alerts] == [Severity.WARNING]  # by now it will not


@pytest.mark.parametrize(
    "module",
    [ReturnsNothing(), NeverSteps(), OnlyLooks(), ForgetsTheStep()],
    ids=["fires-none", "fires-no-step", "fires-no-backward", "fires-closure-only"],
)
def test_a_run_that_never_updates_is_told(module: Classifier) -> None:
    dog = run(module)
    assert codes(dog, Severity.ERROR)[:1] == ["WD506"]


@pytest.mark.parametrize(("batches", "told"), [(100, 64), (20, 21)])
def test_it_is_told_after_a_short_epoch_or_64_batches(batches: int, told: int) -> None:
    (alert,) = (a for a in run(ReturnsNothing(), 2, batches).alerts if a.code == "WD506")
    assert dict(alert.evidence)["batches"] == told


def test_a_short_run_is_told_at_its_end() -> None:
    assert "WD506" in codes(run(ReturnsNothing(), 1, 3))
    assert "WD506" in codes(run(OnlyLooks(), 1, 3))


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        pytest.param(Classifier(), {}, id="quiet-automatic"),
        pytest.param(Classifier(), {"accumulate_grad_batches": 16}, id="quiet-accumulation"),
        pytest.param(SkipsSome(), {}, id="quiet-skips-some"),
        pytest.param(Manual(), {}, id="quiet-manual"),
        pytest.param(Plain(), {}, id="quiet-plain-optimizer"),
        pytest.param(StepsPerEpoch(), {}, id="quiet-steps-per-epoch"),
        pytest.param(FillsFirst(), {"batches": 32}, id="quiet-fills-a-buffer-first"),
        pytest.param(StepsEvery(40, across=True), {"epochs": 3}, id="quiet-steps-every-other-epoch"),
    ],
)
def test_runs_that_update_are_quiet(module: Classifier, settings: dict[str, Any]) -> None:
    dog = run(module, **settings)
    assert not {"WD506", "WD509", "WD314"} & set(codes(dog))
    assert "WD506" in dog.summary.judged
    assert_awake(dog)


def test_a_step_whose_condition_never_comes_true_is_named() -> None:
    (alert,) = (a for a in run(StepsEvery(32, across=False), 8).alerts if a.code == "WD506")
    assert "condition" in alert.hint
    assert "epochs of 20 batches" in alert.hint
    assert dict(alert.evidence)["batches"] < 150


@pytest.mark.parametrize("to_none", [True, False], ids=["none", "zeros"])
def test_gradients_that_are_cleared_are_not_summed_up(to_none: bool) -> None:
    (alert,) = (a for a in run(NeverStepsButClears(to_none), 3).alerts if a.code == "WD506")
    assert dict(alert.evidence)["batches"] == 21


def test_one_batch_of_a_trial_run_proves_nothing() -> None:
    assert "WD506" not in codes(run(NeverSteps(), 1, 4))


def test_a_run_without_optimizer_is_skipped() -> None:
    dog = run(WithoutOptimizer(), 1)
    assert "WD506" not in codes(dog)


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    output = net(torch.randn(3, 4))
    return output, F.cross_entropy(output, torch.tensor([0, 1, 0]))


@pytest.mark.parametrize(
    ("kept", "alive"), [("nothing", False), ("loss", True), ("output", True), ("detached", False), ("value", False)]
)
def test_a_marker_lives_as_long_as_its_graph(kept: str, alive: bool) -> None:
    output, loss = graph()
    reference = mark(loss)
    assert reference is not None
    loss.backward()  # type: ignore[no-untyped-call]
    choice = {"nothing": None, "loss": loss, "output": output, "detached": loss.detach(), "value": loss.item()}
    held = choice.pop(kept)
    del output, loss, choice
    assert (reference() is not None) == alive
    del held
    assert reference() is None


def test_a_loss_without_a_graph_has_no_marker() -> None:
    assert mark(torch.zeros(())) is None


class KeepsLosses(Classifier):
    keep = staticmethod(lambda loss: loss)
    clear_each_epoch = False
    most = 10**6

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.kept.append(self.keep(loss))
        del self.kept[: -self.most]
        return loss

    def on_train_epoch_end(self) -> None:
        if self.clear_each_epoch:
            self.kept.clear()


class KeepsDetached(KeepsLosses):
    keep = staticmethod(lambda loss: loss.detach())


class KeepsFew(KeepsLosses):
    most = 5


class ClearsEachEpoch(KeepsLosses):
    clear_each_epoch = True


class Sums(KeepsLosses):
    total: Any = 0.0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = Classifier.training_step(self, batch, batch_idx)
        self.total = self.total + loss
        return loss


class Logs(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return {"loss": loss, "outputs": loss}


@pytest.mark.parametrize("module", [KeepsLosses(), Sums()], ids=["fires-list", "fires-sum"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_graphs_that_pile_up_are_told(module: KeepsLosses, epochs: int) -> None:
    assert "WD509" in codes(run(module, epochs, 36))


@pytest.mark.parametrize(
    "module", [KeepsDetached(), KeepsFew(), ClearsEachEpoch(), Logs()], ids=lambda m: type(m).__name__
)
def test_what_is_kept_for_a_while_is_quiet(module: Classifier) -> None:
    gc.disable()  # graphs must die by themselves
    try:
        dog = run(module, 2, 36)
    finally:
        gc.enable()
    assert "WD509" not in codes(dog)
    assert "WD509" in dog.summary.judged
