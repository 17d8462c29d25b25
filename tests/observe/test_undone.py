"""Training that is taken back, under a real Trainer."""

import copy
from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelPruning, StochasticWeightAveraging
from torch import Tensor, nn

from sanity_watchdog import SanityWatchdog
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, trainer


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: values.detach().clone() for name, values in module.state_dict().items()}


class InitialisedAnew(Classifier):
    def on_train_epoch_start(self) -> None:
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()


class LoadedAnew(Classifier):
    def on_fit_start(self) -> None:
        self.initial = state(self.net)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if not batch_idx:
            self.net.load_state_dict(self.initial)


class ByItsAverage(Classifier):
    """A slow copy follows the weights and is copied over them."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = mlp().requires_grad_(False)
        self.slow.load_state_dict(self.net.state_dict())

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                fast.copy_(slow.lerp_(fast, 1e-3))


class ValidatedByItsAverage(Classifier):
    """The average is in place while the module validates; what was there before is put back from ``kept``."""

    def __init__(self, kept: Callable[[nn.Module], dict[str, Tensor]] = lambda net: net.state_dict()) -> None:
        super().__init__()
        self.average, self.keep = copy.deepcopy(self.net).requires_grad_(False), kept

    def on_train_batch_end(self, *_: Any) -> None:
        for slow, fast in zip(self.average.parameters(), self.net.parameters(), strict=True):
            slow.lerp_(fast.detach(), 0.05)

    def on_validation_epoch_start(self) -> None:
        self.kept = self.keep(self.net)
        self.net.load_state_dict(self.average.state_dict())

    def on_validation_epoch_end(self) -> None:
        self.net.load_state_dict(self.kept)


class PutBackLater(ValidatedByItsAverage):
    def __init__(self) -> None:
        super().__init__(state)

    def on_validation_epoch_end(self) -> None:
        pass

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.current_epoch and not batch_idx:
            self.net.load_state_dict(self.kept)


class Reverted(Manual):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        before = state(self.net)
        super().training_step(batch, batch_idx)
        self.net.load_state_dict(before)


class ByItsTarget(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.target = copy.deepcopy(self.net).requires_grad_(False)

    def on_train_batch_end(self, *_: Any) -> None:
        self.net.load_state_dict(self.target.state_dict())


class TargetFollows(ByItsTarget):
    def on_train_batch_end(self, *_: Any) -> None:
        self.target.load_state_dict(self.net.state_dict())


class WoundBackOnce(LoadedAnew):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.current_epoch == 2:
            super().on_train_batch_start(batch, batch_idx)


class Lottery(LoadedAnew):
    """Prunes the smallest weights and winds the others back, in every epoch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.current_epoch and not batch_idx:
            kept = {n: (p.abs() > p.abs().quantile(0.1 * self.current_epoch)) for n, p in self.net.named_parameters()}
            self.net.load_state_dict({n: p * kept[n] for n, p in self.initial.items()})


class Reptile(Manual):
    """Three inner steps, of which the outer one takes a fifth."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        before = state(self.net)
        for _ in range(3):
            super().training_step(batch, batch_idx)
        with torch.no_grad():
            for name, p in self.net.named_parameters():
                p.copy_(before[name].lerp(p, 0.2))


class OnTheSphere(Classifier):
    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for p in self.net.parameters():
                if p.ndim > 1:
                    p.copy_(nn.functional.normalize(p, dim=1))


class Clipped(Classifier):
    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for p in self.net.parameters():
                p.clamp_(-0.05, 0.05)


def fit(module: L.LightningModule, *callbacks: L.Callback) -> SanityWatchdog:
    torch.manual_seed(0)
    dog = SanityWatchdog(fail_on=None, select=("WD316", "WD317", "WD320"))
    trainer(dog, *callbacks, max_epochs=4, max_steps=-1).fit(module, loader(*blobs(320)), loader(*blobs(64)))
    return dog


@pytest.mark.parametrize(
    "build", [InitialisedAnew, LoadedAnew, ByItsAverage, Reverted, ByItsTarget, ValidatedByItsAverage]
)
def test_training_that_is_taken_back_is_named_alone(build: Callable[[], L.LightningModule]) -> None:
    dog = fit(build())
    assert codes(dog) == ["WD320"]
    assert_awake(dog, 3)


@pytest.mark.parametrize(
    "build",
    [
        *(Classifier, Manual, TargetFollows, WoundBackOnce, Lottery, Reptile, OnTheSphere, Clipped),
        *(lambda: ValidatedByItsAverage(state), PutBackLater),
    ],
)
def test_weights_that_are_moved_on_purpose_are_quiet(build: Callable[[], L.LightningModule]) -> None:
    dog = fit(build())
    assert codes(dog) == []
    assert_awake(dog, 3)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: EMAWeightAveraging(decay=0.99), id="average"),
        pytest.param(lambda: StochasticWeightAveraging(1e-2, swa_epoch_start=1, annealing_epochs=1), id="stochastic"),
        pytest.param(lambda: ModelPruning("l1_unstructured", amount=0.2), id="pruning"),
    ],
)
def test_averaging_and_pruning_callbacks_are_quiet(make: Callable[[], L.Callback]) -> None:
    assert codes(fit(Classifier(lr=3e-3), make())) == []
