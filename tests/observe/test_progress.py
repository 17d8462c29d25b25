"""The course of the loss in real runs: labels, NaN and its cause, spikes, divergence, leaks."""

import math
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Alert
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, fp16, loader, mlp, watched

K = 10


def the(dog: Any, code: str) -> Alert:
    (alert,) = [a for a in dog.alerts if a.code == code]
    return alert


def by_class(n: int = 320, k: int = K) -> tuple[Tensor, Tensor]:
    x, y = blobs(n, k=k)
    order = y.argsort()
    return x[order], y[order]


# -- labels


@pytest.mark.parametrize("kind", ["long", "bce", "one class first"])
def test_sorted_labels(kind: str) -> None:
    torch.manual_seed(0)
    if kind == "long":
        module, (x, y) = Classifier(), by_class()
    elif kind == "bce":
        module = Classifier(mlp(k=1), lambda z, t: F.binary_cross_entropy_with_logits(z.squeeze(1), t.float()))
        x, y = by_class(256, 2)
    else:
        module, (x, y) = Classifier(mlp(k=2)), by_class(1024, 2)
    dog = watched(module, loader(x, y, shuffle=False, batch_size=16 if kind != "bce" else 8), max_steps=26)
    assert_awake(dog)
    assert "WD110" in codes(dog)
    assert the(dog, "WD110").subjects == ("batch[1]",)


@pytest.mark.parametrize(("share", "size"), [(0.97, 4), (0.5, 1), (0.5, 2), (0.995, 32)])
def test_rare_classes_and_small_batches_are_quiet(share: float, size: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(size * 34, 20)
    y = (torch.rand(len(x)) > share).long()
    dog = watched(Classifier(mlp(k=2)), loader(x, y, batch_size=size), max_steps=34)
    assert_awake(dog)
    assert "WD110" not in codes(dog)
    assert "WD110" in dog.summary.judged


def test_a_label_out_of_range_is_explained_when_a_step_between_samples_raises() -> None:
    x, y = by_class(640)
    y = y + (torch.arange(640) >= 640 - 10)  # one class too high in the last batch, step 19
    order = torch.cat([torch.randperm(608), torch.arange(608, 640)])
    with pytest.raises(IndexError):
        watched(
            Classifier(),
            loader(x[order], y[order], shuffle=False),
            watchdog=(dog := SanityWatchdog(fail_on=None)),
            max_steps=40,
        )
    assert the(dog, "WD105").step == 19


# -- NaN and its cause


def log_of_softmax(z: Tensor, y: Tensor) -> Tensor:
    return -(F.one_hot(y, K) * z.softmax(-1).log()).sum(-1).mean()


class Standardising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / (x.std(0) + 1e-5)


def with_nan(at: int) -> tuple[Tensor, Tensor]:
    x, y = blobs(512)
    x[at, 7] = math.nan
    return x, y


@pytest.mark.parametrize(
    ("module", "data", "kwargs", "code", "text"),
    [
        (Classifier(), with_nan(6 * 32 + 5), {}, "WD121", "NaN in batch 6, batch[0], sample 5, feature 7"),
        (Classifier(loss=log_of_softmax, lr=0.5), (blobs()[0] * 50, blobs()[1]), {}, "WD142", "log of a softmax"),
        (Classifier(nn.Sequential(Standardising(), mlp())), blobs(129), {}, "WD142", "a batch of one sample"),
        (Classifier(loss=lambda z, y: (z.sum() * 1e5).half().float() * 0 + F.cross_entropy(z, y)), blobs(),
         {"precision": "16-true"}, "WD142", "float16"),
    ],
    ids=["data", "log", "one sample", "float16"],
)  # fmt: skip
def test_the_cause_of_a_nan(
    module: L.LightningModule, data: tuple[Tensor, Tensor], kwargs: dict[str, Any], code: str, text: str
) -> None:
    dog = watched(module, loader(*data, shuffle=False), max_steps=14, max_epochs=-1, **kwargs)
    assert not dog.summary.broken, dog.summary.broken
    assert text in the(dog, code).message


def test_a_batch_without_labels_is_the_cause_between_samples_too() -> None:
    x, y = blobs(640)
    y[26 * 16 : 27 * 16] = -100
    dog = watched(Classifier(), loader(x, y, batch_size=16, shuffle=False), max_steps=40)
    alert = the(dog, "WD142")
    assert "batch 26: every label is ignored" in alert.message


def test_the_first_batch_is_named_when_it_comes_between_samples() -> None:
    class Breaks(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss * (math.nan if batch_idx == 10 else 1.0)

    dog = watched(Breaks(), loader(*blobs(640)), max_steps=16)
    assert "in batch 10: cause unknown" in the(dog, "WD142").message


@pytest.mark.parametrize(
    "module", [Classifier(), Manual(), Classifier(loss=lambda z, y: -F.cross_entropy(z.clamp(-3, 3), y))]
)
def test_a_finite_loss_is_quiet_or_skipped_with_its_reason(module: L.LightningModule) -> None:
    dog = watched(module, loader(*blobs(512)), max_steps=9)
    assert_awake(dog)
    assert not {"WD121", "WD142", "WD143"} & set(codes(dog))
    if isinstance(module, Manual):
        assert dog.summary.skipped["WD142"] == "the training step returns no loss"
    else:
        assert "WD142" in dog.summary.judged


def test_accumulation_shows_whole_losses() -> None:
    seen: list[float] = []

    class Records(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            seen.append(float(loss.detach()))
            return loss * (math.nan if batch_idx == 9 else 1.0)

    dog = watched(Records(), loader(*blobs(640)), max_steps=5, accumulate_grad_batches=3)
    alert = the(dog, "WD142")
    assert dict(alert.evidence)["last_finite"] == pytest.approx(seen[8], rel=1e-5)


# -- spikes, divergence, leaks


def test_a_spike_names_its_batch() -> None:
    x, y = torch.randn(960, 20), torch.randn(960, 1)
    x[26 * 32 : 27 * 32] *= 40
    dog = watched(Classifier(mlp(k=1), F.mse_loss), loader(x, y, shuffle=False), max_steps=30)
    assert_awake(dog)
    assert dict(the(dog, "WD143").evidence)["batch"] == 26


@pytest.mark.parametrize(
    ("loss", "data"),
    [
        (F.cross_entropy, blobs(1024)),
        (lambda z, y: F.mse_loss(z[:, 0], y), (torch.randn(1024, 20), torch.randn(1024))),
    ],
    ids=["cross entropy", "mse"],
)
def test_a_loss_that_is_climbed_diverges(loss: Any, data: tuple[Tensor, Tensor]) -> None:
    climbing = Classifier(loss=loss, lr=1e-2, maximize=True)
    dog = watched(climbing, loader(*data), max_steps=36, max_epochs=-1)
    assert_awake(dog)
    assert the(dog, "WD144").severity.name == "ERROR"


class Adversaries(L.LightningModule):
    """A GAN whose generator loses: its loss rises by design."""

    def __init__(self) -> None:
        super().__init__()
        self.g, self.d = mlp(4, 20), mlp(20, 1)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        g, d = self.optimizers()
        fake = self.g(torch.randn(len(batch[0]), 4))
        real, made = self.d(batch[0]), self.d(fake.detach())
        bce = F.binary_cross_entropy_with_logits
        loss = bce(real, torch.ones_like(real)) + bce(made, torch.zeros_like(made))
        d.zero_grad()
        self.manual_backward(loss)
        d.step()
        scores = self.d(fake)
        g.zero_grad()
        self.manual_backward(bce(scores, torch.ones_like(scores)))
        g.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.g.parameters(), 1e-4), torch.optim.Adam(self.d.parameters(), 2e-2)


def test_losses_that_rise_by_design_are_not_judged() -> None:
    dog = watched(Adversaries(), loader(blobs(1024)[0] * 3), max_steps=72)
    assert_awake(dog)
    assert not {"WD141", "WD144", "WD145"} & set(codes(dog))
    assert "WD144" in dog.summary.skipped


def table(leak: str) -> tuple[Tensor, Tensor]:
    x, y = blobs(256, k=4)
    if leak == "label":
        x[:, 11] = y
    elif leak == "scaled":
        x[:, 11] = (y - 1.5) / 1.118
    elif leak == "one hot":
        x[:, 5:9] = F.one_hot(y, 4)
    elif leak == "prototypes":
        x = torch.randn(4, 20)[y]
    elif leak == "rare":
        y = torch.zeros(256).long()
        y[::37] = 1
        x[:, 3] = y
    return x, y


@pytest.mark.parametrize(
    ("leak", "found"),
    [
        ("label", True),
        ("scaled", True),
        ("one hot", True),
        ("none", False),
        ("rare", False),
        ("prototypes", False),
    ],
)
def test_a_label_among_the_features(leak: str, found: bool) -> None:
    torch.manual_seed(0)
    dog = watched(Classifier(mlp(k=4)), loader(*table(leak), shuffle=False), max_steps=2)
    assert_awake(dog)
    assert ("WD145" in codes(dog)) == found
    assert "WD145" in dog.summary.judged


@pytest.mark.parametrize(("kind", "found"), [("equal", True), ("none", False), ("toy", False)])
def test_a_target_among_the_features(kind: str, found: bool) -> None:
    x, y = torch.randn(256, 8), torch.randn(256)
    if kind == "equal":
        x[:, 5] = y
    elif kind == "toy":
        y = 5 + 2 * x[:, 0]
    dog = watched(Classifier(mlp(8, 1), lambda z, t: F.mse_loss(z[:, 0], t)), loader(x, y), max_steps=2)
    assert_awake(dog)
    assert ("WD145" in codes(dog)) == found
    assert "WD145" in dog.summary.judged


def test_dead_units_leave_the_loss_at_chance() -> None:
    net = mlp()
    nn.init.constant_(net[0].bias, -1e3)
    dog = watched(Classifier(net), loader(*blobs(1024)), max_steps=36, max_epochs=-1)
    assert_awake(dog)
    assert "WD141" in {a.code for a in (*dog.alerts, *dog.summary.explained)}


def test_random_labels_of_a_smoke_test_are_quiet() -> None:
    x, y = torch.randn(1024, 20), torch.randint(0, K, (1024,))
    dog = watched(Classifier(), loader(x, y), max_steps=60, max_epochs=-1)
    assert_awake(dog)
    assert not codes(dog)
    assert "WD141" in dog.summary.judged


@pytest.mark.parametrize("at", [3, 4])
def test_a_loss_that_overflows_once_beside_a_scaler_is_a_warning(at: int) -> None:
    class Overflows(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * (math.inf if batch_idx == at else 1.0)

    dog = watched(Overflows(), loader(*blobs(512)), max_steps=12, plugins=[fp16(2.0**10)])
    assert the(dog, "WD142").severity.name == "WARNING"


def test_mixed_precision_first_skips_are_quiet() -> None:
    dog = watched(Classifier(), loader(*blobs(512)), max_steps=9, plugins=[fp16(2.0**24)])
    assert not dog.summary.broken
    assert not {"WD121", "WD142", "WD143", "WD144"} & set(codes(dog))
