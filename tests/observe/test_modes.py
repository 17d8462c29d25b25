"""Modes of modules that really train."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.observe.modes import depends_on_mode
from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched


def net(p: float = 0.2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 10))


class DropPath(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (torch.rand(len(x), 1) > 0.1) if self.training else x


class Parts(Classifier):
    """A backbone and a head."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(nn.Identity(), **kwargs)
        self.backbone = nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.head(self.backbone(batch[0])), batch[1])


def only(dog: SanityWatchdog) -> list[Alert]:
    return [a for a in dog.alerts if a.code == "WD504"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.BatchNorm1d(4), True),
        (nn.BatchNorm1d(4, track_running_stats=False), False),
        (nn.BatchNorm1d(4).requires_grad_(False), False),
        (nn.BatchNorm1d(4, affine=False), True),
        (nn.InstanceNorm1d(4), False),
        (nn.LSTM(4, 4, num_layers=2, dropout=0.1), True),
        (nn.LSTM(4, 4, dropout=0.0), False),
        (nn.MultiheadAttention(4, 2, dropout=0.1), True),
        (nn.MultiheadAttention(4, 2), False),
        (nn.TransformerEncoderLayer(4, 2), False),
        (nn.Linear(4, 4), False),
        (DropPath(), True),
        (nn.Sequential(nn.Dropout(0.1)), False),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else str(v),
)
def test_what_the_mode_changes(module: nn.Module, expected: bool) -> None:
    assert depends_on_mode(module) is expected


def test_a_whole_module_in_eval_mode_is_told_before_the_first_step() -> None:
    dog = watched(Classifier(net()).eval(), max_steps=3)
    (alert,) = only(dog)
    assert (alert.severity, alert.step) == (Severity.ERROR, 0)
    assert_awake(dog)


def test_a_backbone_in_eval_mode_is_named() -> None:
    module = Parts()
    module.backbone.eval()
    (alert,) = only(watched(module, max_steps=3))
    assert (alert.severity, alert.subjects) == (Severity.WARNING, ("backbone",))


class HeldBack(Parts):
    """``train`` puts a part of the network into eval mode again."""

    held = "backbone"

    def train(self, mode: bool = True) -> "HeldBack":
        super().train(mode)
        self.get_submodule(self.held).eval()
        return self


def test_an_overridden_train_is_named() -> None:
    (alert,) = only(watched(HeldBack().train(), max_steps=3))
    assert (alert.severity, alert.subjects) == (Severity.WARNING, ("backbone",))
    assert "HeldBack overrides train()" in str(alert.hint)


def pretrained(module: Parts) -> Parts:
    """With statistics of data."""
    with torch.no_grad():
        module.backbone(3 * torch.randn(64, 20) + 1)
    return module


def healthy_held_norm() -> Classifier:
    module = pretrained(HeldBack())
    module.held = "backbone.1"
    return module.train()


def healthy_held_and_frozen() -> Classifier:
    module = HeldBack().train()
    module.backbone.requires_grad_(False)
    return module


def healthy_never_held() -> Classifier:
    return HeldBack()  # nothing calls train()


def healthy_folded_norm() -> Classifier:
    module = Parts()
    module.backbone[1].eval().bias.data.normal_()  # an affine layer that statistics were folded into
    return module


def healthy_frozen() -> Classifier:
    module = Parts()
    module.backbone.eval().requires_grad_(False)
    return module


def healthy_frozen_norm() -> Classifier:
    module = Parts()
    module.backbone.eval()
    module.backbone[1].requires_grad_(False)
    return module


def healthy_norm_alone() -> Classifier:
    module = pretrained(Parts())
    module.backbone[1].eval()
    return module


def healthy_dropout_alone() -> Classifier:
    module = Classifier(net())
    module.net[3].eval()
    return module


def healthy_average() -> Classifier:
    module = Classifier(net())
    module.average = AveragedModel(module.net)
    module.average.eval()
    return module


def healthy_teacher_held_by_the_optimizer() -> Classifier:
    module = Classifier(net())
    module.teacher = net().eval()
    return module


def healthy_without_modes() -> Classifier:
    module = Classifier()
    module.net.eval()
    return module


def healthy_parametrized() -> Classifier:
    module = Classifier(net())
    parametrizations.weight_norm(module.net[0])
    return module


@pytest.mark.parametrize("make", [v for k, v in dict(globals()).items() if k.startswith("healthy_")])
def test_what_is_done_on_purpose_is_quiet(make: Any) -> None:
    dog = watched(make(), max_steps=4)
    assert "WD504" not in codes(dog)
    assert "WD504" in dog.summary.judged


def test_a_new_norm_alone_is_named() -> None:
    module = Parts()
    module.backbone[1].eval()
    (alert,) = only(watched(module, max_steps=4))
    assert (alert.severity, alert.subjects) == (Severity.WARNING, ("backbone.1",))


class FlipsAt(Classifier):
    """Puts its network into eval mode after a given step and forgets it there."""

    step = 6

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.trainer.global_step == self.step:
            self.net.eval()


class Borrows(Classifier):
    """Evaluates in the middle of training and goes back."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.net.eval()
        with torch.no_grad():
            self.net(batch[0])
        self.net.train()
        return loss


def test_a_flip_is_told_with_its_step() -> None:
    (alert,) = only(watched(FlipsAt(net()), max_steps=16, max_epochs=-1))
    assert (alert.severity, alert.step) == (Severity.ERROR, 8)
    assert "first noticed at step 6" in alert.message


def test_modes_that_are_put_back_are_quiet() -> None:
    assert not only(watched(Borrows(net()), max_steps=8))


def test_lightning_puts_modes_back_after_validation() -> None:
    data = loader(*blobs())
    dog = watched(Classifier(net()), data, data, max_steps=16, max_epochs=-1, val_check_interval=4)
    assert not only(dog)


def test_the_alert_clears_when_the_mode_comes_back() -> None:
    class Comes(FlipsAt):
        step = 2

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if self.trainer.global_step == 7:
                self.net.train()

    dog = watched(Comes(net()), max_steps=12, max_epochs=-1)
    (alert,) = only(dog)
    assert alert.last_step < 8
