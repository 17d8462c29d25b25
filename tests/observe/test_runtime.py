"""Precision asked and got, and clashes of formats and devices, in real runs."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.accelerators import CPUAccelerator
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from sanity_watchdog import CompatibilityWatch
from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, Manual, blobs, codes, fp16, loader, trainer, watched


def watch(module, data=None, validation=None, **kwargs):
    dog = CompatibilityWatch(fail_on=None)
    return watched(module, data, validation, watchdog=dog, **{"max_steps": 2, **kwargs})


def crashed(module, x, y, error=RuntimeError, validation=None, **kwargs):
    dog = CompatibilityWatch(fail_on=None)
    with pytest.raises(error):
        trainer(dog, max_steps=2, **kwargs).fit(module, loader(x, y), validation)
    return dog


@pytest.mark.parametrize("precision", ["32-true", "64-true", "16-true", "bf16-true", "bf16-mixed", 32, "bf16"])
def test_a_precision_that_is_honoured_is_quiet(precision):
    x, y = blobs(64)
    x = x.double() if precision == "64-true" else x
    dog = watch(Classifier(), loader(x, y), precision=precision)
    assert codes(dog, Severity.INFO) == []
    assert "WD401" in dog.summary.judged


def test_real_fp16_with_a_scaler_is_quiet():
    assert codes(watch(Classifier(), plugins=[fp16()]), Severity.INFO) == []


@pytest.mark.parametrize("precision", ["16-mixed", 16])
def test_fp16_on_the_cpu_becomes_bf16(precision):
    dog = watch(Classifier(), precision=precision)
    assert codes(dog) == ["WD401"]
    assert "asked for 16-mixed, running bf16-mixed" in dog.alerts[0].message


def test_what_an_earlier_trainer_was_asked_for_is_forgotten():
    dog = CompatibilityWatch(fail_on=None)
    watched(Classifier(), watchdog=dog, max_steps=1, precision="16-mixed")
    watched(Classifier(), watchdog=dog, max_steps=1)
    assert codes(dog) == []


@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_an_accelerator_instance_trains_in_float32(precision):
    dog = watch(Classifier(), precision=precision, accelerator=CPUAccelerator())
    assert codes(dog) == ["WD401"]
    assert "float32" in dog.alerts[0].message


class Disabled(Classifier):
    def training_step(self, batch, batch_idx):
        with torch.autocast("cpu", enabled=False):
            return super().training_step(batch, batch_idx)


def test_autocast_switched_off_by_hand_is_noticed():
    assert codes(watch(Disabled(), precision="bf16-mixed")) == ["WD401"]


class PartlyDisabled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(20, 16), nn.Linear(16, 10)

    def forward(self, x):
        h = self.first(x).float()
        with torch.autocast("cpu", enabled=False):
            return self.second(h)


def test_a_region_without_autocast_is_quiet():
    assert codes(watch(Classifier(PartlyDisabled()), precision="bf16-mixed"), Severity.INFO) == []


@pytest.mark.parametrize("make", [Classifier, Manual])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_float64_batch_is_explained(make, precision):
    x, y = blobs(64)
    dog = crashed(make(), x.double(), y, precision=precision)
    (alert,) = dog.alerts
    assert (alert.code, alert.severity, alert.step) == ("WD402", Severity.ERROR, 0)
    assert alert.subjects == ("batch[0]", "net.0")
    assert "runs.py:" in alert.where


def test_a_float64_batch_in_validation_is_explained_before_training():
    x, y = blobs(64)
    dog = crashed(Classifier(), x, y, validation=loader(x.double(), y), num_sanity_val_steps=1)
    assert codes(dog) == ["WD402"]
    assert dog.alerts[0].stage == "validation"


class Casting(Classifier):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return super().training_step((x.float(), y), batch_idx)


def test_a_float64_batch_that_the_step_converts_is_quiet():
    x, y = blobs(64)
    assert codes(watch(Casting(), loader(x.double(), y)), Severity.INFO) == []


def test_integers_into_an_embedding_are_quiet():
    net = nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(32, 10))
    tokens, y = torch.randint(0, 30, (64, 4)), torch.randint(0, 10, (64,))
    assert codes(watch(Classifier(net), loader(tokens, y)), Severity.INFO) == []


def test_integers_into_a_linear_layer_are_explained():
    x, y = blobs(64)
    dog = crashed(Classifier(), x.long(), y)
    assert codes(dog) == ["WD402"]
    assert "int64" in dog.alerts[0].message


def raised(batch):
    raise ValueError("unexpected dtype of the batch")


def raised_within_a_line(batch):
    if batch[0].dtype is not torch.float64: raise ValueError("unexpected dtype of the batch")  # noqa: E701  # fmt: skip


def raised_by_name(batch):
    error = ValueError("the file is not on the same device as the batch")
    raise error


def refused_by_numpy(batch):
    np.zeros(3, dtype="nonsense")


@pytest.mark.parametrize("fail", [raised, raised_within_a_line, raised_by_name, refused_by_numpy])
def test_an_exception_of_the_users_own_is_left_alone(fail):
    class Picky(Classifier):
        def training_step(self, batch, batch_idx):
            fail(batch)

    assert codes(crashed(Picky(), *blobs(64), error=(ValueError, TypeError)), Severity.INFO) == ["WD002"]


def test_a_loss_promoted_by_its_target_is_worth_knowing():
    x, y = blobs(64)
    square = Classifier(loss=lambda p, t: ((p - F.one_hot(t, 10).double()) ** 2).mean())
    dog = watch(square, loader(x, y))
    assert codes(dog) == []
    assert codes(dog, Severity.INFO) == ["WD402"]


def test_a_tensor_on_another_device_is_explained():
    class Stray(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shift = nn.Linear(20, 10), torch.zeros(10, device="meta")

        def forward(self, x):
            return self.body(x) + self.shift

    dog = crashed(Classifier(Stray()), *blobs(64))
    assert codes(dog) == ["WD403"]
    assert dog.alerts[0].subjects[0] == "net.shift"
    assert dog.alerts[0].message == "net.shift is on meta, the others on cpu"


class Empty(Classifier):
    def on_fit_start(self):
        self.net[2] = nn.Linear(32, 10, device="meta").requires_grad_(False)


def test_a_parameter_without_values_is_found_before_the_first_step():
    dog = CompatibilityWatch(fail_on="error")
    with pytest.raises(NotImplementedError):  # Lightning's own clean-up cannot move it either
        trainer(dog, max_steps=2).fit(Empty(), loader(*blobs(64)))
    assert (dog.verdict, dog.alerts[0].code) == ("fail", "WD403")
    assert dog.alerts[0].subjects == ("net.2.weight", "net.2.bias")


def test_an_exception_about_shapes_is_left_alone():
    class Shaped(Classifier):
        def training_step(self, batch, batch_idx):
            return torch.stack([torch.zeros(2), torch.zeros(3)]).sum()

    assert codes(crashed(Shaped(), *blobs(64)), Severity.INFO) == ["WD002"]


def test_nothing_of_the_batch_is_kept_alive():
    kept = []

    class Keeping(Classifier):
        def on_train_batch_start(self, batch, batch_idx):
            kept.append(weakref.ref(batch[0]))

    dog = CompatibilityWatch(fail_on=None)
    fit = trainer(dog, max_steps=3)
    fit.fit(Keeping(), loader(*blobs(256)))
    gc.collect()
    assert all(ref() is None for ref in kept[:-1])


def test_flex_attention_compiles_itself_and_survives():
    class Flexible(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            q = x[:, :16].reshape(1, 1, -1, 16)
            with torch.no_grad():
                h = flex_attention(q, q, q)
            return self.head(h.reshape(-1, 16))

    dog = CompatibilityWatch(fail_on=None, targets=("mps",))
    watched(Classifier(Flexible()), loader(*blobs(64)), watchdog=dog, max_steps=1)
    torch._dynamo.reset()
    assert codes(dog) == []
    assert not dog.summary.broken


class Scaling(Classifier):
    def training_step(self, batch, batch_idx):
        x, y = batch
        return super().training_step(((x - x.mean()) / x.std(), y), batch_idx)


class ByHand(Classifier):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(x @ self.table, y)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.lstm(x.reshape(-1, 4, 5))[0][:, -1])


@pytest.mark.parametrize(
    ("make", "error", "subjects"),
    [
        (Scaling, RuntimeError, ("input", "net.0")),
        (ByHand, RuntimeError, ("batch[0]",)),
        (lambda: Classifier(Recurrent()), ValueError, ("input", "net.lstm")),
        (lambda: Classifier(nn.Sequential(nn.LayerNorm(20), nn.Linear(20, 10))), RuntimeError, ("batch[0]", "net.0")),
        (
            lambda: Classifier(nn.Sequential(nn.Unflatten(1, (4, 5)), nn.Conv1d(4, 2, 3), nn.Flatten())),
            RuntimeError,
            ("input", "net.1"),
        ),
    ],
    ids=["scaled", "by hand", "recurrent", "norm", "convolution"],
)
def test_the_float64_tensor_is_traced_to_the_batch(make, error, subjects):
    x, y = blobs(64)
    (alert,) = crashed(make(), x.double(), y, error=error).alerts
    assert alert.code == "WD402"
    assert alert.subjects == subjects
    assert "batch[0]" in alert.hint
    assert "float64" in alert.message
