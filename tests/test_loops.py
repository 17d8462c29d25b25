"""Loops around the checks of modes, schedules and the loop: two fits, resuming, validation, compiled code."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.tuner import Tuner
from torch import nn
from torch.optim import lr_scheduler as lrs

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.reports.load import load
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


class Sized(Usual):
    """Has what the finders set."""

    def __init__(self) -> None:
        super().__init__()
        self.lr, self.batch_size = 1e-3, 4

    def train_dataloader(self) -> Any:
        return loader(*blobs(640), batch_size=self.batch_size)

    def val_dataloader(self) -> Any:
        return loader(*blobs(32))


def test_a_search_before_the_fit_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "watchdog.jsonl"
    module, dog = Sized(), SanityWatchdog(fail_on="error", record=record)
    one = trainer(dog, max_steps=24, max_epochs=-1)
    Tuner(one).lr_find(module, num_training=5, update_attr=False)
    Tuner(one).scale_batch_size(module, max_trials=2, init_val=8, steps_per_trial=1)
    assert not record.exists()
    assert "watchdog" not in capsys.readouterr().err
    one.fit(module)
    (run,) = load([record]).runs
    assert (run.verdict, run.summary.batches, run.info["settings"]["fail_on"]) == ("pass", 24, "error")
    assert_awake(dog)


@pytest.mark.parametrize(
    "finder",
    [
        lambda: LearningRateFinder(num_training_steps=5, update_attr=False),
        lambda: BatchSizeFinder(max_trials=2, init_val=8, steps_per_trial=1),
    ],
    ids=["lr", "batch-size"],
)
def test_a_search_within_the_fit_leaves_the_fit_watched(finder: Any) -> None:
    dog = SanityWatchdog(fail_on=None)
    trainer(dog, finder(), max_steps=24, max_epochs=-1).fit(Sized())
    assert (codes(dog), dog.verdict, dog.summary.batches) == ([], "pass", 24)
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
    assert dog.summary.skipped["WD508"] == "compiled step"
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
