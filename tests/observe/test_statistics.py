"""Running statistics of real layers."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched


def net(momentum: float | None = 0.1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 16), nn.BatchNorm1d(16, momentum=momentum), nn.ReLU(), nn.Linear(16, 10))


class TwoViews(Classifier):
    """Normalises two kinds of data by one layer, as a discriminator does."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self.net(x), y) + self.loss(self.net(x + 4), y)


class Alternates(Classifier):
    """Scales its data up after it has begun, while the statistics stand still."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        later = self.trainer.global_step >= 40
        self.net[1].momentum = 1e-5 if later else 0.1
        return self.loss(self.net(x * 30 if later else x), y)


def run(module: Classifier, steps: int = 60, batch: int = 32) -> Any:
    return watched(module, loader(*blobs(64 * batch), batch_size=batch), max_steps=steps, max_epochs=-1)


@pytest.mark.parametrize(("momentum", "steps"), [(0.1, 60), (0.06, 103)])
def test_what_is_left_of_the_initial_statistics_does_not_count(momentum: float, steps: int) -> None:
    x, y = blobs(64 * 32)
    quiet = [(1e-3 * x, y), (1e-2 * x - 0.02, y)]
    for data in quiet:
        dog = watched(Classifier(net(momentum)), loader(*data, batch_size=32), max_steps=steps, max_epochs=-1)
        assert "WD508" not in codes(dog)
        assert "WD508" in dog.summary.judged


def test_momentum_of_zero_is_told() -> None:
    dog = run(Classifier(net(0.0)), 24)
    assert "WD508" in codes(dog)
    (alert,) = (a for a in dog.alerts if a.code == "WD508")
    assert alert.subjects == ("net.1",)
    assert alert.step <= 13


def test_statistics_that_data_left_behind_are_told() -> None:
    dog = run(Alternates(net()), 62)
    assert "WD508" not in codes(dog)  # one sample so far
    assert "WD508" in codes(run(Alternates(net()), 106))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(Classifier(net(), lr=1e-2), id="plain"),
        pytest.param(Classifier(net(None)), id="cumulative"),
        pytest.param(Classifier(net(0.9)), id="quick"),
        pytest.param(TwoViews(net()), id="two-views"),
    ],
)
def test_healthy_statistics_are_quiet(module: Classifier) -> None:
    dog = run(module)
    assert "WD508" not in codes(dog)
    assert "WD508" in dog.summary.judged
    assert_awake(dog)


@pytest.mark.parametrize(
    ("module", "batch", "reason"),
    [
        pytest.param(Classifier(), 32, "no BatchNorm with running statistics", id="none"),
        pytest.param(Classifier(net()), 8, "fewer than 2 samples of settled statistics with batches of 16", id="small"),
        pytest.param(
            Classifier(net(0.01)), 32, "fewer than 2 samples of settled statistics with batches of 16", id="slow"
        ),
    ],
)
def test_what_is_not_judged_says_why(module: Classifier, batch: int, reason: str) -> None:
    assert run(module, 60, batch).summary.skipped["WD508"] == reason


def test_no_hook_stays_and_buffers_are_untouched() -> None:
    from tests.runs import trainer

    def buffers(observed: bool) -> torch.Tensor:
        torch.manual_seed(5)
        module, data = Classifier(net()), loader(*blobs(320), shuffle=False)
        if observed:
            watched(module, data, max_steps=30, max_epochs=-1)
        else:
            trainer(max_steps=30, max_epochs=-1).fit(module, data)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
        return torch.cat([b.flatten().float() for b in module.buffers()])

    assert torch.equal(buffers(True), buffers(False))
