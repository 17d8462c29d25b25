"""Dropout as real runs call it."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.alerts import Severity
from sanity_watchdog.observe.dropped import dropped
from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched

Q = torch.zeros(1, 1, 2, 4)


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (F.dropout, (Q,), {}, 0.5),
        (F.dropout, (Q, 0.1, False), {}, 0.0),
        (F.dropout, (Q,), {"p": 0.2, "training": True}, 0.2),
        (F.dropout2d, (Q, 0.3), {}, 0.3),
        (F.alpha_dropout, (Q, 0.3), {"training": False}, 0.0),
        (torch.dropout, (Q, 0.4, True), {}, 0.4),
        (torch.dropout, (Q,), {"p": 0.4, "train": False}, 0.0),
        (F.scaled_dot_product_attention, (Q, Q, Q), {"dropout_p": 0.1}, 0.1),
        (F.scaled_dot_product_attention, (Q, Q, Q), {}, 0.0),
        (F.relu, (Q,), {}, 0.0),
    ],
)
def test_what_a_call_drops(function: Any, args: Any, kwargs: Any, expected: float) -> None:
    assert dropped(function, args, kwargs) == expected


class Net(nn.Module):
    """Two layers with something between them."""

    def __init__(self, between: Any, **modules: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.between = nn.Linear(20, 16), nn.Linear(16, 10), between
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self, torch.relu(self.a(x))))


class Unregistered(Net):
    def __init__(self) -> None:
        super().__init__(lambda net, x: net.hidden[0](x))
        self.hidden = [nn.Dropout(0.3)]


class MonteCarlo(Classifier):
    """Switches its dropout layers on for validation."""

    def on_validation_epoch_start(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.train()


class Adapted(Classifier):
    """A copy is trained on each batch of the evaluation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        copied = copy.deepcopy(self.net).train()
        optimizer = torch.optim.SGD(copied.parameters(), 1e-2)
        with torch.enable_grad():
            F.cross_entropy(copied(batch[0].clone()), batch[1].clone()).backward()
        optimizer.step()


def attention(p: float) -> Any:
    def attend(net: nn.Module, x: Tensor) -> Tensor:
        q = x[:, None, None]
        return F.scaled_dot_product_attention(q, q, q, dropout_p=p if net.training or p < 0.2 else 0.0)[:, 0, 0]

    return attend


def validated(module: Classifier, **kwargs: Any) -> Any:
    data = loader(*blobs(64))
    return watched(module, data, data, max_steps=2, num_sanity_val_steps=1, inference_mode=False, **kwargs)


@pytest.mark.parametrize(
    ("module", "severity"),
    [
        pytest.param(Classifier(Net(lambda net, x: F.dropout(x, 0.5))), Severity.WARNING, id="fires-flag-forgotten"),
        pytest.param(Classifier(Net(attention(0.1))), Severity.WARNING, id="fires-attention"),
        pytest.param(Classifier(Unregistered()), Severity.WARNING, id="fires-unregistered-layer"),
        pytest.param(
            Classifier(Net(lambda net, x: nn.Dropout(0.5)(x))), Severity.WARNING, id="fires-layer-made-in-forward"
        ),
        pytest.param(
            MonteCarlo(Net(lambda net, x: net.d(x), d=nn.Dropout(0.5))), Severity.INFO, id="quiet-monte-carlo"
        ),
        pytest.param(Classifier(Net(lambda net, x: F.dropout(x, 0.5, net.training))), None, id="quiet-flag-given"),
        pytest.param(Classifier(Net(lambda net, x: net.d(x), d=nn.Dropout(0.5))), None, id="quiet-layer"),
        pytest.param(Classifier(Net(attention(0.5))), None, id="quiet-attention"),
        pytest.param(Classifier(Net(lambda net, x: F.dropout(x, 0.0))), None, id="quiet-nothing-dropped"),
        pytest.param(Adapted(Net(lambda net, x: net.d(x), d=nn.Dropout(0.5))), None, id="quiet-test-time-training"),
    ],
)
def test_dropout_in_validation(module: Classifier, severity: Severity | None) -> None:
    dog = validated(module)
    found = [a for a in dog.alerts if a.code == "WD505"]
    assert [a.severity for a in found] == ([] if severity is None else [severity])
    if found:
        assert found[0].stage == "validation"
        assert found[0].where.partition(":")[0].endswith("test_dropout.py")
    assert_awake(dog)


class Encoder(nn.Module):
    """Its layers take a fused path in evaluation."""

    def __init__(self, training: bool | None) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(20, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head, self.flag = nn.Linear(20, 10), training

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x[:, None])[:, 0]
        return self.head(F.dropout(h, 0.3, self.training if self.flag is None else self.flag))


@pytest.mark.parametrize(("flag", "fires"), [(True, True), (None, False)])
def test_dropout_beside_fused_attention(flag: bool | None, fires: bool) -> None:
    dog = validated(Classifier(Encoder(flag)))
    found = [a for a in dog.alerts if a.code == "WD505"]
    assert [a.where.partition(":")[0].endswith("test_dropout.py") for a in found] == [True] * fires
    assert_awake(dog)


def test_it_is_told_before_training() -> None:
    (alert,) = (a for a in validated(Classifier(Net(lambda n, x: F.dropout(x)))).alerts if a.code == "WD505")
    assert (alert.step, alert.count) == (0, 1)


def test_the_first_validation_of_a_run_without_a_sanity_check_is_looked_at() -> None:
    data = loader(*blobs(64))
    dog = watched(Classifier(Net(lambda n, x: F.dropout(x))), data, data, max_steps=2)
    assert "WD505" in codes(dog)


@pytest.mark.parametrize(("p", "fires"), [(0.97, True), (0.9, False)])
def test_dropout_that_drops_nearly_everything(p: float, fires: bool) -> None:
    dog = watched(Classifier(nn.Sequential(nn.Linear(20, 16), nn.Dropout(p), nn.Linear(16, 10))), max_steps=2)
    assert ("WD505" in codes(dog)) == fires
    assert "WD505" in dog.summary.judged


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (nn.Sequential(nn.Linear(20, 10), nn.Dropout(0.3)), True),
        (nn.Sequential(nn.Linear(20, 10), nn.Dropout(0.3), nn.Unflatten(1, (10,)), nn.Flatten()), True),
        (nn.Sequential(nn.Dropout(0.3), nn.Linear(20, 10)), False),
        (nn.Sequential(nn.Linear(20, 10), nn.Dropout(0.0)), False),
        (nn.Sequential(nn.Linear(20, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 10)), False),
        (nn.Sequential(nn.Linear(20, 10), nn.ReLU(), nn.Dropout(0.3)), False),
    ],
)
def test_outputs_that_are_dropped_are_told(net: nn.Module, told: bool) -> None:
    dog = watched(Classifier(net), loader(*blobs()), max_steps=3)
    found = [a for a in dog.alerts if a.code == "WD505"]
    assert [a.severity for a in found] == [Severity.WARNING] * told
    assert_awake(dog)
