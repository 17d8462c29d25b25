"""Batches without updates, and graphs that stay, in real runs."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import StochasticWeightAveraging
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from sanity_watchdog.observe.loop import mark
from sanity_watchdog.observe.run import Run
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, trainer, watched


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


class StepsWhile(Manual):
    """Steps where ``steps`` says so, given the number of the batch in the fit and the epoch."""

    def __init__(self, steps: Callable[[int, int], bool]) -> None:
        super().__init__()
        self.steps, self.seen = steps, 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen += 1
        optimizer = self.optimizers()
        self.manual_backward(Classifier.training_step(self, batch, batch_idx))
        if self.steps(self.seen, self.current_epoch):
            optimizer.step()
            optimizer.zero_grad()


class ReturnsWhile(StepsWhile):
    """Returns a loss where ``steps`` says so."""

    def __init__(self, steps: Callable[[int, int], bool]) -> None:
        super().__init__(steps)
        self.automatic_optimization = True

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen += 1
        loss = Classifier.training_step(self, batch, batch_idx)
        return loss if self.steps(self.seen, self.current_epoch) else None


class ForgetsOptimizers(Classifier):
    """Makes an optimizer and does not return it; ``by_hand`` moves the weights itself."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.by_hand = by_hand

    def configure_optimizers(self) -> Any:
        torch.optim.SGD(self.parameters(), lr=0.1)

    def on_after_backward(self) -> None:
        for p in self.parameters() if self.by_hand else ():
            p.data -= 0.1 * p.grad


@pytest.mark.parametrize("by_hand", [False, True])
def test_an_optimizer_that_is_not_returned(by_hand: bool) -> None:
    dog = watched(ForgetsOptimizers(by_hand), max_steps=-1, max_epochs=1, limit_train_batches=12)
    assert [(a.code, a.severity) for a in dog.alerts] == ([] if by_hand else [("WD506", Severity.WARNING)])


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


EVER_RARER = {int(1.2**i) + i for i in range(60)}


@pytest.mark.parametrize(
    ("module", "epochs", "batches", "told"),
    [
        pytest.param(StepsWhile(lambda n, _: n <= 200), 1, 750, range(512, 540), id="fires-long-epoch"),
        pytest.param(StepsWhile(lambda n, _: n <= 30), 1, 350, range(319, 321), id="fires-at-the-end"),
        pytest.param(StepsWhile(lambda n, _: n <= 200), 23, 20, range(250, 265), id="fires-short-epochs"),
        pytest.param(ReturnsWhile(lambda n, _: n <= 100), 20, 20, range(128, 310), id="fires-returns-none"),
        pytest.param(StepsWhile(lambda n, _: n <= 30), 1, 150, range(0), id="quiet-early-end"),
        pytest.param(StepsWhile(lambda n, _: n in EVER_RARER), 2, 600, range(0), id="quiet-ever-rarer"),
        pytest.param(StepsWhile(lambda n, _: n % 150 == 0), 1, 640, range(0), id="quiet-accumulates-150"),
        pytest.param(StepsWhile(lambda n, e: n % (1, 16, 200)[e] == 0), 3, 320, range(0), id="quiet-accumulates-more"),
        pytest.param(ReturnsWhile(lambda n, _: n % 300 < 60), 1, 900, range(0), id="quiet-collects-in-between"),
        pytest.param(ReturnsWhile(lambda n, _: n <= 100), 1, 400, range(0), id="quiet-returns-none-in-the-rest"),
    ],
)
def test_steps_that_stop_later_are_told(module: Manual, epochs: int, batches: int, told: range) -> None:
    dog = run(module, epochs, batches)
    found = [a for a in dog.alerts if a.code == "WD506"]
    assert [dict(a.evidence)["stopped"] in told for a in found] == [True] * bool(told)
    assert all(a.severity is Severity.WARNING for a in found)
    assert_awake(dog)


def test_an_epoch_that_averages_statistics_alone_is_quiet() -> None:
    net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    average = StochasticWeightAveraging(1e-3, swa_epoch_start=1)
    dog = SanityWatchdog(fail_on=None)
    data = loader(*blobs(1200), batch_size=2)
    trainer(dog, average, max_epochs=2, max_steps=-1).fit(Classifier(net), data)
    assert "WD506" not in codes(dog)
    assert_awake(dog)


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


@pytest.mark.parametrize("module", [Logs(), KeepsLosses()], ids=lambda m: type(m).__name__)
def test_graphs_that_torch_itself_keeps_are_not_judged(module: Classifier) -> None:
    with FlopCounterMode(display=False):
        dog = run(module, 2, 36)
    assert "WD509" not in codes(dog)
    assert "ModuleTracker" in dog.summary.skipped["WD509"]


def in_place(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total = F.cross_entropy(z, y)
    total = total + 0.1 * z.square().mean()
    total /= 4
    return total


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        pytest.param(lambda z, y: (F.cross_entropy(z, y) + 0.1 * z.std()) / 4, True, id="fires-sum"),
        pytest.param(lambda z, y: 0.25 * (F.cross_entropy(z, y) - 0.1 * z.std()), True, id="fires-difference"),
        pytest.param(lambda z, y: sum([F.cross_entropy(z, y), 0.1 * z.std()]) / 4, True, id="fires-list"),
        pytest.param(in_place, True, id="fires-in-place"),
        pytest.param(lambda z, y: F.cross_entropy(z, y) + 0.25 * z.std(), False, id="quiet-one-weight"),
        pytest.param(lambda z, y: (F.cross_entropy(z, y) + 3 * z.std()) / 4, False, id="quiet-weighted-mean"),
        pytest.param(lambda z, y: (F.cross_entropy(z, y) + 0.1 * z.std()) / 5, False, id="quiet-another-number"),
    ],
)
def test_a_sum_of_terms_that_is_divided_is_told(loss: Any, told: bool) -> None:
    dog = watched(Classifier(loss=loss, optimizer=torch.optim.SGD, lr=0.1), accumulate_grad_batches=4, max_steps=3)
    assert codes(dog) == ["WD512"] * told
    assert "WD512" in dog.summary.judged


def test_what_is_accumulated_follows_the_epochs() -> None:
    begun = Run(nn.Identity(), accumulate=2, accumulation={0: 2, 3: 8}, epoch=1, batches_per_epoch=10)
    assert [begun.accumulated(batch) for batch in (0, 19, 20, 500)] == [2, 2, 8, 8]
    assert Run(nn.Identity(), accumulate=4).accumulated(100) == 4
