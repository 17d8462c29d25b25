"""A step on a device that exists in name only, in real child processes."""

import lightning.pytorch as L
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sanity_watchdog import check_placement
from sanity_watchdog.portability import placement
from sanity_watchdog.portability.precision import release

pytestmark = pytest.mark.skipif(
    release(torch.__version__) < placement.OLDEST, reason="torch's private backend cannot be driven from Python"
)


class Fine(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.temperature = nn.Linear(8, 3), torch.tensor(2.0)
        self.register_buffer("mask", torch.ones(8), persistent=False)

    def forward(self, x):
        return self.net(x * self.mask) / self.temperature

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss


class Attribute(Fine):
    def __init__(self):
        super().__init__()
        self.shift = torch.zeros(8)

    def forward(self, x):
        return super().forward(x + self.shift)


class Hard(Fine):
    def forward(self, x):
        return super().forward(x) + self.net(x).detach().cpu()


class Reading(Fine):
    def forward(self, x):
        return super().forward(x) * (2 if x.sum().item() > 0 else 1)


def batch():
    return torch.randn(4, 8), torch.arange(4) % 3


def made():
    return Attribute(), batch()


@pytest.mark.parametrize(
    ("model", "status", "told"),
    [
        (Fine, "fine", ""),
        (Attribute, "fault", "same device"),
        (Hard, "fault", "same device"),
        (Reading, "unchecked", "needs a value on the host"),
    ],
)
def test_verdicts(model, status, told):
    module = model()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    report = check_placement(module, batch())
    assert report.status == status, report
    assert told in report.error
    assert ("test_second_device.py:" in report.where) == (status != "fine")
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_by_a_factory():
    assert check_placement("tests.portability.test_second_device:made").status == "fault"


def test_what_cannot_be_tried_is_said():
    assert "cannot import 'absent'" in check_placement("absent:made").error
    assert "does not pickle" in check_placement(lambda: None).error


def test_a_child_that_hangs_or_dies_is_said(monkeypatch):
    assert "no verdict within 0.01 s" in check_placement(Fine(), batch(), timeout=0.01).error
    monkeypatch.setattr(placement.sys, "executable", "/bin/false")
    assert "ended with 1" in check_placement(Fine(), batch()).error


def test_an_old_torch_is_said(monkeypatch):
    monkeypatch.setattr(placement, "OLDEST", (9, 0))
    assert check_placement(Fine(), batch()).status == "unchecked"


def test_reports_read_well():
    assert str(placement.PlacementReport("fine")) == "every tensor follows the model"
    assert str(placement.PlacementReport("fault", "mixed", "a.py:3")) == "fault: mixed at a.py:3"
    assert str(placement.PlacementReport("unchecked", "too old")) == "could not check: too old"
