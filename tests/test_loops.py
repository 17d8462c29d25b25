"""Loops around the checks of modes, schedules and the loop: two fits, resuming, validation, compiled code."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs

from sanity_watchdog import SanityWatchdog
from tests.runs import Classifier, assert_awake, blobs, codes, loader, trainer, watched


class Usual(Classifier):
    """Dropout, BatchNorm, a warm-up and a log: what most people write."""

    def __init__(self, net: nn.Module | None = None) -> None:
        layers = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
        super().__init__(layers if net is None else net)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        schedule = lrs.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@pytest.fixture
def data() -> Any:
    return loader(*blobs(640))


LOOP = {"WD501", "WD502", "WD504", "WD505", "WD506", "WD509", "WD510"}


def test_two_fits_are_judged_each_for_itself(data: Any) -> None:
    module, dog = Usual(), SanityWatchdog(fail_on=None)
    for _ in range(2):
        trainer(dog, max_steps=24, max_epochs=-1).fit(module, data)
        assert codes(dog) == []
        assert set(dog.summary.judged) >= LOOP - {"WD509"}
        assert_awake(dog)


def test_a_fit_that_goes_on_in_one_trainer_is_quiet(data: Any) -> None:
    module, dog = Usual(), SanityWatchdog(fail_on=None)
    one = trainer(dog, max_epochs=1, max_steps=-1)
    one.fit(module, data)
    one.fit_loop.max_epochs = 2
    one.fit(module, data)
    assert codes(dog) == []
    assert_awake(dog)


def test_a_resumed_run_is_quiet(data: Any, tmp_path: Path) -> None:
    first = trainer(max_steps=24, max_epochs=-1)
    first.fit(Usual(), data)
    first.save_checkpoint(tmp_path / "last.ckpt")
    dog = SanityWatchdog(fail_on=None)
    trainer(dog, max_steps=60, max_epochs=-1).fit(Usual(), data, ckpt_path=tmp_path / "last.ckpt")
    assert codes(dog) == []
    assert set(dog.summary.judged) >= LOOP
    assert_awake(dog)


@pytest.mark.parametrize(
    "settings", [{"val_check_interval": 5}, {"check_val_every_n_epoch": 2}, {"limit_val_batches": 1}]
)
def test_validation_in_the_middle_is_quiet(data: Any, settings: dict[str, Any]) -> None:
    dog = watched(Usual(), data, loader(*blobs(96)), max_steps=48, max_epochs=-1, num_sanity_val_steps=2, **settings)
    assert codes(dog) == []
    assert set(dog.summary.judged) >= LOOP
    assert_awake(dog)


def test_a_compiled_network_says_what_is_not_seen(data: Any) -> None:
    module = Usual()
    module.net = torch.compile(module.net, backend="eager")
    dog = watched(module, data, loader(*blobs(96)), max_steps=60, max_epochs=-1, num_sanity_val_steps=1)
    assert codes(dog) == []
    assert dog.summary.skipped["WD508"] == "compiled or fused step"
    assert {"WD501", "WD504", "WD506", "WD509"} <= set(dog.summary.judged)
    assert_awake(dog)
    torch._dynamo.reset()


def test_a_compiled_network_in_eval_mode_is_told_by_its_plain_name(data: Any) -> None:
    module = Usual()
    module.net.eval()
    module.net = torch.compile(module.net, backend="eager")
    dog = watched(module, data, max_steps=4, max_epochs=-1)
    assert [a.subjects for a in dog.alerts if a.code == "WD504"] == [("net",)]
    torch._dynamo.reset()
