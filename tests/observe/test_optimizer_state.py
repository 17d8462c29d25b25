"""Optimizers that lose what they remember, under a real Trainer."""

import copy
from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch.optim import SGD, Adam
from torch.optim.optimizer import _global_optimizer_post_hooks

from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, watched


class MadeInTheStep(Manual):
    """In plain PyTorch style."""

    make: Callable[..., torch.optim.Optimizer] = staticmethod(lambda p: Adam(p, 1e-3))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.make(self.net.parameters())
        optimizer.zero_grad()
        F.cross_entropy(self.net(batch[0]), batch[1]).backward()
        optimizer.step()


class MomentumMadeInTheStep(MadeInTheStep):
    make = staticmethod(lambda p: SGD(p, 1e-2, momentum=0.9))


class PlainDescentMadeInTheStep(MadeInTheStep):
    make = staticmethod(lambda p: SGD(p, 1e-2))


class MadeInEveryEpoch(Classifier):
    def on_train_epoch_start(self) -> None:
        self.trainer.optimizers = [Adam(self.parameters(), 1e-3)]


class ReplacedOnce(MadeInEveryEpoch):
    def on_train_epoch_start(self) -> None:
        if self.current_epoch == 2:
            super().on_train_epoch_start()


class ClearedInEveryBatch(Classifier):
    def on_train_batch_start(self, *_: Any) -> None:
        self.trainer.optimizers[0].state.clear()


class LoadedInEveryEpoch(Classifier):
    def on_train_epoch_start(self) -> None:
        optimizer = self.trainer.optimizers[0]
        self.initial = getattr(self, "initial", copy.deepcopy(optimizer.state_dict()))
        optimizer.load_state_dict(copy.deepcopy(self.initial))


class MovedInEveryBatch(Classifier):
    """As where the state waits on another device."""

    def on_train_batch_start(self, *_: Any) -> None:
        for state in self.trainer.optimizers[0].state.values():
            state.update({name: value.clone() for name, value in state.items()})


class OwnOptimizer(Manual):
    """Its own one steps; another is configured."""

    def on_fit_start(self) -> None:
        self.own = Adam(self.net.parameters(), 1e-3)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.own.zero_grad()
        F.cross_entropy(self.net(batch[0]), batch[1]).backward()
        self.own.step()


class InnerOptimizers(Manual):
    """A new inner optimizer for each batch, an outer step every fourth."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        inner = Adam(self.net.parameters(), 1e-3)
        inner.zero_grad()
        F.cross_entropy(self.net(batch[0]), batch[1]).backward()
        inner.step()
        if batch_idx % 4 == 3:
            super().training_step(batch, batch_idx)


def fit(module: L.LightningModule, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    dog = watched(module, loader(*blobs(640)), **{"max_epochs": 4, "max_steps": -1, **kwargs})
    assert not _global_optimizer_post_hooks
    return dog


@pytest.mark.parametrize(
    "build", [MadeInTheStep, MomentumMadeInTheStep, MadeInEveryEpoch, ClearedInEveryBatch, LoadedInEveryEpoch]
)
def test_a_state_that_is_lost_again_and_again_is_named_alone(build: Callable[[], L.LightningModule]) -> None:
    dog = fit(build())
    assert codes(dog) == ["WD511"]
    assert_awake(dog, 3)


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        pytest.param(Classifier, {}, id="adam"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=0.05), {}, id="sgd"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=0.05, momentum=0.9), {}, id="momentum"),
        pytest.param(
            lambda: Classifier(optimizer=torch.optim.LBFGS, lr=0.1, max_iter=4), {"max_epochs": 1}, id="lbfgs"
        ),
        pytest.param(Manual, {}, id="manual"),
        pytest.param(MovedInEveryBatch, {}, id="moved"),
        pytest.param(ReplacedOnce, {}, id="replaced-once"),
        pytest.param(InnerOptimizers, {}, id="inner-optimizers"),
    ],
)
def test_a_state_that_is_kept_is_quiet(build: Callable[[], L.LightningModule], settings: dict[str, Any]) -> None:
    dog = fit(build(), **settings)
    assert codes(dog) == []
    assert_awake(dog, 3)


@pytest.mark.parametrize("build", [OwnOptimizer, PlainDescentMadeInTheStep])
def test_weights_that_another_optimizer_moves_are_not_called_still(build: Callable[[], L.LightningModule]) -> None:
    (alert,) = (a for a in fit(build()).alerts if a.code == "WD506")
    assert alert.severity is Severity.WARNING
    assert "something changes the weights" in alert.message
