"""Loss calls in real runs: every way of calling, what is said of them, and what is left alone."""

import inspect
import math
import weakref
from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sanity_watchdog import LossWatch
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.observe import losses
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, trainer, watched


def watch(module: L.LightningModule, *tensors: Tensor, validation: Any = None, **kwargs: Any) -> LossWatch:
    settings = {n: kwargs.pop(n) for n in ("num_classes", "expected_loss", "select") if n in kwargs}
    dog = LossWatch(fail_on=None, **{"select": ("WD10", "WD111", "WD112"), **settings})
    watched(module, loader(*tensors, shuffle=False) if tensors else None, validation, dog, **{"max_steps": 3, **kwargs})
    return dog


def the(dog: LossWatch, code: str) -> Alert:
    (found,) = (a for a in dog.alerts if a.code == code)
    return found


class OwnStep(Classifier):
    """Runs ``step(net, batch)``."""

    def __init__(self, step: Callable[[nn.Module, Any], Any], net: nn.Module | None = None, **kwargs: Any) -> None:
        super().__init__(net, **kwargs)
        self.step = step

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.step(self.net, batch)


def hot(k: int = 10) -> nn.Module:
    """A head that is far too large."""
    net = mlp(k=k)
    with torch.no_grad():
        net[-1].weight.mul_(60)
    return net


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "module": nn.CrossEntropyLoss(),
    "function": F.cross_entropy,
    "from import": cross_entropy,
    "lambda": lambda z, y: F.cross_entropy(z, y),
    "keywords": lambda z, y: F.cross_entropy(target=y, input=z),
    "nll": lambda z, y: F.nll_loss(z.log_softmax(1), y),
    "none": lambda z, y: F.cross_entropy(z, y, reduction="none").mean(),
    "sum divided": lambda z, y: F.cross_entropy(z, y, reduction="sum") / len(y),
    "chunks": lambda z, y: sum(F.cross_entropy(a, b) for a, b in zip(z.chunk(2), y.chunk(2), strict=True)) / 2,
    "vmap": lambda z, y: torch.vmap(F.cross_entropy)(z[:, None], y[:, None]).mean(),
    "weights": nn.CrossEntropyLoss(torch.rand(10) + 0.5, label_smoothing=0.1),
    "soft": lambda z, y: F.cross_entropy(z, F.one_hot(y, 10).float()),
    "pixels": lambda z, y: F.cross_entropy(z[..., None, None].expand(-1, -1, 3, 3), y[:, None, None].expand(-1, 3, 3)),
}


@pytest.mark.parametrize("way", [w for w in WAYS if w != "vmap"])
def test_every_way_of_calling_is_seen(way: str) -> None:
    torch.manual_seed(0)
    healthy = watch(Classifier(loss=WAYS[way]))
    assert "(ln 10 = 2.303" in healthy.summary.vitals["loss"]
    assert not codes(healthy)
    assert_awake(healthy, 5)
    faulty = watch(Classifier(hot(), WAYS[way]))
    alert = the(faulty, "WD101")
    assert alert.severity is Severity.ERROR
    assert alert.step == 0
    assert "net.2.weight is large" in alert.hint


def test_a_call_whose_values_cannot_be_read_is_said_to_be_unseen() -> None:
    dog = watch(Classifier(loss=WAYS["vmap"]))
    assert not codes(dog)
    assert "WD101" in dog.summary.skipped


def test_the_line_is_the_users() -> None:
    def step(net: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(net(batch[0]), batch[1])

    line = inspect.getsourcelines(step)[1] + 1
    assert the(watch(OwnStep(step, hot())), "WD101").where.endswith(f"test_losses.py:{line}")


def test_the_first_loss_is_judged_before_the_first_backward() -> None:
    dog = LossWatch(fail_on=None, select=("WD101",))
    seen: list[int] = []

    class Look(L.Callback):
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
            seen.append(len(dog.alerts))

    trainer(dog, Look(), max_steps=1).fit(Classifier(hot()), loader(*blobs()))
    assert seen == [1]


@pytest.mark.parametrize("module", [Classifier, Manual])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_manual_optimisation_and_accumulation(module: type[Classifier], accumulate: int) -> None:
    kwargs = {} if module is Manual else {"accumulate_grad_batches": accumulate}
    dog = watch(module(hot()), **kwargs)
    assert the(dog, "WD101").count == 1
    assert not codes(watch(module(), **kwargs))


def test_lbfgs_is_judged_by_its_first_call() -> None:
    dog = watch(Classifier(optimizer=torch.optim.LBFGS, lr=0.1), max_steps=1)
    assert "(ln 10 = 2.303)" in dog.summary.vitals["loss"]
    assert not codes(dog)


@pytest.mark.parametrize(
    ("loss", "optimizer", "rate", "least"),
    [
        pytest.param(nn.CrossEntropyLoss(reduction="sum"), torch.optim.SGD, 0.1, Severity.ERROR, id="sum"),
        pytest.param(nn.CrossEntropyLoss(reduction="sum"), torch.optim.Adam, 1e-3, Severity.ERROR, id="adam"),
        pytest.param(nn.CrossEntropyLoss(reduction="sum"), torch.optim.SGD, 1e-3, Severity.INFO, id="small rate"),
        pytest.param(lambda z, y: F.cross_entropy(z, y) * len(y), torch.optim.SGD, 0.1, Severity.ERROR, id="by hand"),
        pytest.param(
            lambda z, y: F.cross_entropy(z, y, reduction="none").sum(), torch.optim.SGD, 0.1, Severity.ERROR, id="none"
        ),
    ],
)
def test_a_sum_where_a_mean_is_meant(loss: Any, optimizer: Any, rate: float, least: Severity) -> None:
    alert = the(watch(Classifier(loss=loss, optimizer=optimizer, lr=rate)), "WD101")
    assert alert.severity is least
    assert "sum over 32 targets" in alert.message


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: F.cross_entropy(z, y, reduction="sum") / len(y),
        lambda z, y: F.cross_entropy(z, y, reduction="sum") * (1 / 32),
        lambda z, y: F.cross_entropy(z, y, reduction="none").mean() * 3,
        lambda z, y: (F.cross_entropy(z, y, reduction="none") * torch.rand(32)).sum(),
        lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 10).float(), reduction="sum") / 10,
        lambda z, y: F.binary_cross_entropy_with_logits(z, F.one_hot(y, 10).float(), reduction="sum"),
    ],
)
def test_sums_that_are_meant_are_quiet(loss: Any) -> None:
    dog = watch(Classifier(loss=loss, optimizer=torch.optim.SGD))
    assert not codes(dog)
    assert_awake(dog, 4)


def test_bits_are_told_from_nats() -> None:
    alert = the(watch(Classifier(loss=lambda z, y: F.cross_entropy(z, y) / math.log(2))), "WD101")
    assert alert.severity is Severity.INFO
    assert "bits" in alert.message


def test_a_flipped_sign() -> None:
    def flipped(z: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(z, y)

    assert codes(watch(Classifier(loss=flipped))) == ["WD108"]
    assert not codes(watch(Classifier(loss=flipped, maximize=True)))
    assert not codes(watch(Classifier(loss=lambda z, y: 0.1 * z.square().mean() - F.cross_entropy(z, y))))


def test_several_losses_are_judged_one_by_one() -> None:
    def step(net: nn.Module, batch: Any) -> Tensor:
        z, y = net(batch[0]), batch[1]
        return F.cross_entropy(z, y) + 5 * F.cross_entropy(z * 1.0, y) + z.square().mean() * 100

    assert not codes(watch(OwnStep(step)))


def test_metrics_are_no_losses() -> None:
    def step(net: nn.Module, batch: Any) -> Tensor:
        z, y = net(batch[0]), batch[1]
        F.cross_entropy(z.detach() * 100, y)
        F.cross_entropy(z.detach().softmax(1), y)
        return F.cross_entropy(z, y)

    assert not codes(watch(OwnStep(step)))


def test_a_resumed_run_is_skipped(tmp_path: Any) -> None:
    first = trainer(max_steps=2)
    first.fit(Classifier(hot()), loader(*blobs()))
    first.save_checkpoint(tmp_path / "a.ckpt")
    dog = LossWatch(fail_on=None, select=("WD101",))
    trainer(dog, max_steps=4).fit(Classifier(hot()), loader(*blobs()), ckpt_path=tmp_path / "a.ckpt")
    assert dog.summary.skipped["WD101"] == "continues an earlier run"


def by_hand(net: nn.Module, batch: Any) -> Tensor:
    z = net(batch[0])
    return (z.logsumexp(1) - z.gather(1, batch[1][:, None]).squeeze(1)).mean()


def test_without_a_loss_call_the_total_is_judged_if_the_classes_are_given() -> None:
    dog = watch(OwnStep(by_hand))
    assert dog.summary.skipped["WD101"] == "no loss function was called"
    assert not codes(watch(OwnStep(by_hand), num_classes=10))
    assert the(watch(OwnStep(by_hand, hot()), num_classes=10), "WD101").severity is Severity.ERROR
    assert the(watch(OwnStep(by_hand), expected_loss=0.2), "WD101").severity is Severity.WARNING
    assert not codes(watch(OwnStep(lambda n, b: F.cross_entropy(n(b[0]), b[1])), num_classes=1000))


def test_of_a_loss_written_by_hand_the_scores_are_judged() -> None:
    def smoothed(net: nn.Module, batch: Any) -> Tensor:
        return -(net(batch[0]).log_softmax(1) * F.one_hot(batch[1], 10)).sum(1).mean()

    healthy = watch(OwnStep(smoothed))
    assert not codes(healthy)
    assert "written by hand" in healthy.summary.skipped["WD102"]
    alert = the(watch(OwnStep(smoothed, hot())), "WD101")
    assert alert.severity is Severity.WARNING
    assert "net.2.weight is large" in alert.hint


def test_a_regression_has_no_expected_start() -> None:
    x = torch.randn(64, 20)
    dog = watch(Classifier(mlp(k=20), F.mse_loss), x, x)
    assert dog.summary.skipped["WD101"] == "mse_loss has no expected first value"
    assert "(mse_loss)" in dog.summary.vitals["loss"]


def test_no_tensor_of_the_step_outlives_it() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def step(net: nn.Module, batch: Any) -> Tensor:
        z = net(batch[0])
        alive.append(weakref.ref(z))
        return F.cross_entropy(z, batch[1]) + z.log_softmax(1).mean() * 0

    class Look(L.Callback):
        def on_before_optimizer_step(self, *args: Any) -> None:
            left.append(sum(ref() is not None for ref in alive))

    left: list[int] = []
    dog = LossWatch(fail_on=None, select=("WD10",))
    trainer(dog, Look(), max_steps=4).fit(OwnStep(step), loader(*blobs()))
    assert left == [0, 0, 0, 0]


def test_an_opaque_loss_is_named() -> None:
    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return z.square().mean()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return torch.zeros(32, 10)

    dog = watch(OwnStep(lambda net, batch: Fused.apply(net(batch[0]))))
    assert dog.summary.skipped["WD101"] == "the loss is computed by Fused"


class Views(Classifier):
    """InfoNCE on two noisy views."""

    def __init__(self, normalise: bool | str, temperature: float) -> None:
        super().__init__(nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32)))
        self.normalise, self.temperature = normalise, temperature

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        a, b = (self.net(batch[0] + noise * torch.randn_like(batch[0])) for noise in (0.1, 1.0))
        if self.normalise == "by hand":
            a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
            return F.cross_entropy(math.exp(4.6) * a @ b.flip(0).T, torch.arange(len(a)))
        if self.normalise:
            a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        return F.cross_entropy(a @ b.T / self.temperature, torch.arange(len(a)))


def test_contrastive_losses() -> None:
    assert not codes(watch(Views(True, 0.1)))
    assert not codes(watch(Views(True, 0.02)))
    by_hand = watch(Views("by hand", 1.0))
    assert the(by_hand, "WD101").severity is Severity.INFO
    assert codes(watch(Views(False, 0.005))) == ["WD101"]


def test_a_margin_softmax_over_cosines_is_a_choice() -> None:
    weight = nn.Parameter(torch.randn(10, 32))

    def step(net: nn.Module, batch: Any) -> Tensor:
        cosine = F.linear(F.normalize(net[0](batch[0])), F.normalize(weight)).clamp(-1 + 1e-6, 1 - 1e-6)
        margin = (cosine.acos() + 0.5).cos()
        return F.cross_entropy(64 * torch.where(F.one_hot(batch[1], 10).bool(), margin, cosine), batch[1])

    dog = watch(OwnStep(step))
    assert the(dog, "WD101").severity is Severity.INFO
    assert_awake(dog, 4)


@pytest.mark.parametrize("unit", [True, False])
def test_a_temperature_of_prototypes_is_a_choice(unit: bool) -> None:
    layer = nn.Linear(32, 10, bias=False)
    prototypes = nn.utils.parametrizations.weight_norm(layer) if unit else layer

    def step(net: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(prototypes(F.normalize(net[0](batch[0]))) / 0.01, batch[1])

    own = OwnStep(step)
    own.prototypes = prototypes
    assert (the(watch(own), "WD101").severity is Severity.INFO) == unit


@pytest.mark.parametrize(
    "last", [nn.Softmax(1), nn.Softmax(-1), nn.Sigmoid(), nn.Sequential(nn.Softmax(1), nn.Flatten())]
)
def test_probabilities_as_logits(last: nn.Module) -> None:
    dog = watch(Classifier(nn.Sequential(mlp(), last)))
    assert the(dog, "WD102").severity is Severity.ERROR
    assert "container.py" not in the(dog, "WD102").where


def test_a_factor_on_all_scores_is_no_bias() -> None:
    dog = watch(OwnStep(lambda net, batch: F.cross_entropy(100 * net(batch[0]), batch[1])))
    assert "drop a factor on them" in the(dog, "WD101").hint


def test_zeros_of_dead_layers_are_no_activation() -> None:
    net = mlp(k=4)
    for p in net.parameters():
        nn.init.constant_(p, 0.0 if p.ndim == 1 else 0.01)
    assert "WD107" not in codes(watch(Classifier(net), *blobs(k=4)))
    net = nn.Sequential(mlp(k=4), nn.ReLU())
    assert "WD107" in codes(watch(Classifier(net), *blobs(k=4)))


def yes(batch: Any) -> Tensor:
    return F.one_hot(batch[1], 10).float()


def dice(p: Tensor, y: Tensor) -> Tensor:
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


TWICE: dict[str, Callable[[nn.Module, Any], Tensor]] = {
    "log of a softmax": lambda net, b: F.nll_loss(net(b[0]).softmax(1).log_softmax(1), b[1]),
    "log of a sigmoid": lambda net, b: -(yes(b) * F.logsigmoid(net(b[0]).sigmoid())).mean(),
    "half a tanh": lambda net, b: F.binary_cross_entropy_with_logits(net(b[0]).tanh() * 0.5 + 0.5, yes(b)),
    "tanh by two": lambda net, b: F.binary_cross_entropy_with_logits((1 + torch.tanh(net(b[0]))) / 2, yes(b)),
    "tanh the other way": lambda net, b: F.binary_cross_entropy_with_logits(0.5 - net(b[0]).tanh() / -2, yes(b)),
    "soft margin": lambda net, b: F.multilabel_soft_margin_loss(net(b[0]).sigmoid(), yes(b)),
    "dice": lambda net, b: dice(torch.softmax(nn.Softmax(1)(net(b[0])), 1), yes(b)),
    "dice of yes and no": lambda net, b: dice(net(b[0]).sigmoid().flatten(1).sigmoid(), yes(b)),
}
ONCE: dict[str, Callable[[nn.Module, Any], Tensor]] = {
    "half a tanh": lambda net, b: F.binary_cross_entropy((net(b[0]).tanh() + 1) / 2, yes(b)),
    "pixels of a tanh": lambda net, b: F.mse_loss((net(b[0]).tanh() + 1) / 2, b[0][:, :10].sigmoid()),
    "soft cap": lambda net, b: F.cross_entropy(30 * torch.tanh(net(b[0]) / 30), b[1]),
    "capped for yes and no": lambda net, b: F.binary_cross_entropy_with_logits(8 * torch.tanh(net(b[0]) / 8), yes(b)),
    "gate": lambda net, b: F.cross_entropy(net(b[0]) * (net(b[0]).tanh() + 1) * 0.5, b[1]),
    "logs of logs": lambda net, b: F.nll_loss(net(b[0]).log_softmax(1).log_softmax(1), b[1]),
    "another axis": lambda net, b: F.nll_loss((net(b[0]).softmax(0) * 32).log_softmax(1), b[1]),
    "a teacher": lambda net, b: F.kl_div(
        net(b[0]).log_softmax(1), net(b[0]).detach().softmax(1).log_softmax(1), log_target=True, reduction="batchmean"
    ),
    "scaled between": lambda net, b: F.mse_loss((net(b[0]).softmax(1) / 0.1).softmax(1), yes(b)),
    "there and back": lambda net, b: F.mse_loss(net(b[0]).softmax(0).softmax(1), yes(b)),
    "gate of a gate": lambda net, b: F.mse_loss((net(b[0]) * net(b[0]).sigmoid()).sigmoid(), yes(b)),
    "sharpened": lambda net, b: F.nll_loss((net(b[0]).softmax(1) * 8).log_softmax(1), b[1]),
    "soft margin": lambda net, b: F.multilabel_soft_margin_loss(net(b[0]), yes(b)),
    "soft margin of a sum": lambda net, b: F.multilabel_soft_margin_loss(net(b[0]), yes(b), reduction="sum"),
    "weighed margin": lambda net, b: F.multilabel_soft_margin_loss(net(b[0]), yes(b), torch.rand(10)),
    "margins": lambda net, b: F.multilabel_soft_margin_loss(net(b[0]), yes(b), reduction="none").mean(),
}


@pytest.mark.parametrize("name", TWICE)
def test_squashed_twice(name: str) -> None:
    assert the(watch(OwnStep(TWICE[name])), "WD102").severity is Severity.ERROR


@pytest.mark.parametrize("name", ONCE)
def test_squashed_once(name: str) -> None:
    dog = watch(OwnStep(ONCE[name]))
    assert_awake(dog, 3)
    assert not codes(dog)


def test_probabilities_in_validation_only() -> None:
    class Mixed(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.loss(self.net(batch[0]).softmax(1), batch[1])

    dog = watch(Mixed(), validation=loader(*blobs()), num_sanity_val_steps=1)
    assert the(dog, "WD102").stage == "validation"
    assert not codes(watch(Classifier(), validation=loader(*blobs()), num_sanity_val_steps=1))


@pytest.mark.parametrize(
    "last", [nn.LogSoftmax(1), nn.Identity(), nn.Sequential(nn.Tanh(), nn.Linear(10, 10)), nn.LayerNorm(10)]
)
def test_what_is_no_probability_is_quiet(last: nn.Module) -> None:
    assert not codes(watch(Classifier(nn.Sequential(mlp(), last))))


@pytest.mark.parametrize(
    "loss",
    [
        F.nll_loss,
        lambda z, y: F.nll_loss(z.softmax(1), y),
        lambda z, y: F.nll_loss(z.log_softmax(0), y),
        lambda z, y: F.cross_entropy(z.softmax(0), y),
        lambda z, y: F.cross_entropy(z[:, :1], y * 0),
        lambda z, y: F.kl_div(z.softmax(1), F.one_hot(y, 10).float(), reduction="batchmean"),
        lambda z, y: F.kl_div(z, F.one_hot(y, 10).float(), reduction="batchmean"),
        lambda z, y: F.kl_div(z.log_softmax(1), z.detach().log_softmax(1), reduction="batchmean"),
        lambda z, y: F.binary_cross_entropy_with_logits(F.logsigmoid(z), F.one_hot(y, 10).float()),
    ],
)
def test_the_wrong_kind_of_number(loss: Any) -> None:
    assert codes(watch(Classifier(loss=loss)))[:1] == ["WD103"]


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: F.nll_loss(z.log_softmax(1) * torch.randn(len(z), 1), y),
        lambda z, y: F.kl_div(z.log_softmax(1), (2 * z.detach()).softmax(1), reduction="batchmean"),
        lambda z, y: F.kl_div(z.log_softmax(1), z.detach().log_softmax(1), reduction="batchmean", log_target=True),
        lambda z, y: F.binary_cross_entropy(z.sigmoid(), F.one_hot(y, 10).float()),
        lambda z, y: F.cross_entropy(z.reshape(8, 4, 10).transpose(1, 2), y.reshape(8, 4)),
    ],
)
def test_the_right_kind_of_number(loss: Any) -> None:
    dog = watch(Classifier(loss=loss))
    assert not codes(dog)
    assert_awake(dog, 3)


def regression() -> tuple[Tensor, Tensor]:
    x = torch.randn(128, 20)
    return x, x[:, 0] - x[:, 1]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        nn.L1Loss(),
        nn.HuberLoss(),
        lambda p, y: F.mse_loss(y, p),
        lambda p, y: ((p - y) ** 2).mean(),
        lambda p, y: (y - p).abs().sum() / len(y),
    ],
)
def test_a_column_against_a_row(loss: Any) -> None:
    assert the(watch(Classifier(mlp(k=1), loss), *regression()), "WD104").severity is Severity.ERROR


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    ("loss", "operation"),
    [
        (lambda p, y: -(p.tanh() * y).mean(), "multiplication"),
        (lambda p, y: (F.softplus(p) / (y.abs() + 1) - 0.1 * p).sum(), "division"),
        (lambda p, y: torch.min(p * y, p.clamp(-1, 1) * y).mean(1).mean(), "multiplication"),
        (lambda p, y: (y.unsqueeze(1) * F.mse_loss(p.squeeze(1), y, reduction="none")).mean(), "multiplication"),
        (lambda p, y: F.huber_loss(p, y + 0.9 * p.detach()), "addition"),
        (lambda p, y: (p - (y + p.detach())).square().mean(), "addition"),
        (lambda p, y: -(p.squeeze(1) * (y - p.detach())).mean(), "subtraction"),
    ],
)
def test_arithmetic_with_a_column_and_a_row(loss: Any, operation: str) -> None:
    alert = the(watch(Classifier(mlp(k=1), loss), *regression()), "WD104")
    assert alert.severity is Severity.ERROR
    assert alert.subjects == (operation,)


@pytest.mark.parametrize(
    "loss",
    [
        lambda p, y: -(p.squeeze(1) * y).mean(),
        lambda p, y: (p * y).sigmoid().mean(),
        lambda p, y: (p.exp() * y.exp() - p @ p.T).square().mean(),
        lambda p, y: (p * y - p @ p.T).mean(),
        lambda p, y: (p.square() + y).mean(),
        lambda p, y: (p + p.squeeze(1) - 2 * p @ p.T).mean(),
        lambda p, y: ((p * y).softmax(1) @ y - y).abs().mean() + p.mean(),
    ],
)
def test_pairs_that_are_meant_or_make_no_difference(loss: Any) -> None:
    dog = watch(Classifier(mlp(k=1), loss), *regression())
    assert_awake(dog, 1)
    assert "WD104" not in codes(dog)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "loss",
    [
        lambda p, y: F.mse_loss(p.squeeze(1), y),
        lambda p, y: F.mse_loss(p, y[:, None]),
        lambda p, y: ((p.squeeze(1) - y) ** 2).mean(),
        lambda p, y: F.mse_loss(p.squeeze(1).expand(5, -1), y),
        lambda p, y: ((p.squeeze(1)[:, None] - y) ** 2).mean(),
        lambda p, y: ((p.squeeze(1)[:, None] - p.squeeze(1)[None]) ** 2).mean(),
        lambda p, y: (p - y.mean()).square().mean(),
    ],
)
def test_shapes_that_are_meant(loss: Any) -> None:
    assert not codes(watch(Classifier(mlp(k=1), loss), *regression()))


def labelled(change: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    x, y = blobs(128)
    y[:10] = torch.arange(10)
    return x, change(y)


@pytest.mark.parametrize(
    ("change", "words", "raises"),
    [
        (lambda y: y + 1, "start at 1", IndexError),
        (lambda y: y - 1, "add 1", IndexError),
        (lambda y: y.float(), "labels.long()", RuntimeError),
        (lambda y: F.one_hot(y, 10), "argmax(1)", RuntimeError),
        (lambda y: y.int(), "labels.long()", RuntimeError),
        (lambda y: y[:, None], "squeeze(1)", RuntimeError),
        (lambda y: y * 0 - 100, "skip such batches", None),
    ],
    ids=["from one", "minus one", "float", "one-hot", "int32", "column", "all ignored"],
)
def test_bad_targets_are_explained_also_where_they_crash(change: Any, words: str, raises: Any) -> None:
    dog = LossWatch(fail_on=None, select=("WD10",))
    fit = trainer(dog, max_steps=2).fit
    if raises is None:
        fit(Classifier(), loader(*labelled(change)))
    else:
        with pytest.raises(raises):
            fit(Classifier(), loader(*labelled(change), shuffle=False))
    assert words in the(dog, "WD105").hint


def test_labels_are_explained_before_a_device_could_assert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "asserts_later", lambda target: True)
    explained: list[int] = []
    dog = LossWatch(fail_on=None, select=("WD105",))
    monkeypatch.setattr(losses.LossCalls, "_look", lambda self, at, call: explained.append(len(at.evidence)))
    with pytest.raises(IndexError):
        trainer(dog).fit(Classifier(), loader(*labelled(lambda y: y + 1), shuffle=False))
    assert explained == [1]
    assert "start at 1" in the(dog, "WD105").hint


@pytest.mark.parametrize(
    ("loss", "code", "words"),
    [
        (lambda z, y: F.binary_cross_entropy(z, F.one_hot(y, 10).float()), "WD103", "with_logits"),
        (lambda z, y: F.binary_cross_entropy_with_logits(z[:, :1], (y % 2).float()), "WD105", "same shape"),
        (lambda z, y: F.cross_entropy(z.reshape(4, 8, 10), y.reshape(4, 8)), "WD105", "axis 1"),
    ],
    ids=["scores into bce", "column into bce", "classes last"],
)
def test_calls_that_raise_are_explained(loss: Any, code: str, words: str) -> None:
    dog = LossWatch(fail_on=None, select=("WD10",))
    with pytest.raises((RuntimeError, ValueError)):
        trainer(dog).fit(Classifier(loss=loss), loader(*blobs()))
    assert codes(dog) == [code]
    assert words in the(dog, code).hint


def test_masks_of_bytes_have_no_floor() -> None:
    def step(net: nn.Module, batch: Any) -> Tensor:
        return F.binary_cross_entropy_with_logits(net(batch[0]), F.one_hot(batch[1], 10) * 255.0)

    assert codes(watch(OwnStep(step)))[0] == "WD105"


def test_a_class_that_is_ignored() -> None:
    x, y = labelled(lambda y: y)
    assert codes(watch(Classifier(loss=nn.CrossEntropyLoss(ignore_index=3)), x, y)) == ["WD105"]
    assert not codes(watch(Classifier(loss=nn.CrossEntropyLoss(ignore_index=-1)), x, torch.where(y == 3, -1, y)))


def test_unused_outputs() -> None:
    x, y = blobs(512)
    assert codes(watch(Classifier(mlp(k=1000)), x, y, max_steps=40)) == ["WD106"]
    assert not codes(watch(Classifier(mlp(k=12)), x, y, max_steps=40))


@pytest.mark.parametrize("last", [nn.ReLU(), nn.Tanh(), nn.GELU(), nn.Softplus()])
def test_clipped_scores(last: nn.Module) -> None:
    assert codes(watch(Classifier(nn.Sequential(mlp(), last)))) == ["WD107"]


def test_clipped_regression() -> None:
    x, y = regression()
    column = [nn.Flatten(0)]
    assert codes(watch(Classifier(nn.Sequential(mlp(k=1), nn.Sigmoid(), *column), F.mse_loss), x, y)) == ["WD107"]
    assert codes(watch(Classifier(nn.Sequential(mlp(k=1), nn.ReLU(), *column), F.mse_loss), x, y)) == ["WD107"]
    assert not codes(watch(Classifier(nn.Sequential(mlp(k=1), nn.ReLU(), *column), F.mse_loss), x, y.square()))
    assert not codes(watch(Classifier(nn.Sequential(mlp(k=1), nn.Sigmoid(), *column), F.mse_loss), x, y.sigmoid()))


@pytest.mark.parametrize(
    ("cut", "operation"),
    [
        (lambda z: z.argmax(1).float(), "argmax"),
        (lambda z: z.detach()[:, 0], "detach"),
        (lambda z: torch.tensor([r.item() for r in z[:, 0]]), "item"),
        (lambda z: torch.no_grad()(lambda: z[:, 0] * 2)(), "no_grad"),
    ],
    ids=["argmax", "detach", "item", "no_grad"],
)
def test_a_cut_graph_is_named(cut: Any, operation: str) -> None:
    dog = LossWatch(fail_on=None, select=("WD10",))
    with pytest.raises(RuntimeError, match="does not require grad"):
        trainer(dog).fit(Classifier(loss=lambda z, y: F.mse_loss(cut(z), y.float())), loader(*blobs()))
    alert = the(dog, "WD109")
    assert operation in alert.message
    assert "test_losses.py:" in alert.where


def test_a_loss_that_is_cut_later_is_explained_when_it_crashes() -> None:
    class Later(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = super().training_step(batch, batch_idx)
            return loss.detach() if batch_idx == 4 else loss

    dog = LossWatch(fail_on=None, select=("WD109",))
    with pytest.raises(RuntimeError, match="does not require grad"):
        trainer(dog, max_steps=8).fit(Later(), loader(*blobs()))
    assert the(dog, "WD109").step == 4


def test_a_new_leaf_made_of_a_number_has_no_gradient() -> None:
    def step(net: nn.Module, batch: Any) -> Tensor:
        return torch.tensor(F.cross_entropy(net(batch[0]), batch[1]).item(), requires_grad=True)

    assert codes(watch(OwnStep(step))) == ["WD109"]
    assert codes(watch(OwnStep(lambda net, batch: torch.tensor(2.0, requires_grad=True)))) == ["WD109"]
    assert not codes(watch(OwnStep(lambda net, batch: torch.tensor(0.0, requires_grad=True))))


class Language(Classifier):
    """A small causal language model."""

    def __init__(self, targets: Callable[[Tensor], tuple[Tensor, Tensor]], causal: bool = True, ignore: int = -100):
        super().__init__(nn.ModuleList([nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 50)]))
        self.targets, self.causal, self.ignore = targets, causal, ignore

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        embed, lstm, head = self.net
        ids, targets = self.targets(batch[0])
        hidden = embed(ids)
        hidden = lstm(hidden)[0] if self.causal else hidden
        return F.cross_entropy(head(hidden).flatten(0, 1), targets.flatten(), ignore_index=self.ignore)


def text(pad_from: int = 99) -> Tensor:
    ids = torch.randint(1, 50, (64, 16))
    return torch.where(torch.arange(16) < pad_from, ids, 0)


def test_alignment_of_language_models() -> None:
    assert not codes(watch(Language(lambda t: (t[:, :-1], t[:, 1:])), text()))
    assert codes(watch(Language(lambda t: (t, t)), text())) == ["WD112"]
    assert codes(watch(Language(lambda t: (t[:, :-2], t[:, 2:])), text())) == ["WD112"]
    assert codes(watch(Language(lambda t: (t[:, 1:], t[:, :-1])), text())) == ["WD112"]
    assert not codes(watch(Language(lambda t: (t, t), causal=False), text()))


def test_padding_in_the_loss() -> None:
    assert codes(watch(Language(lambda t: (t[:, :-1], t[:, 1:])), text(6))) == ["WD111"]
    assert codes(watch(Language(lambda t: (t, F.pad(t, (0, 1), value=-100)[:, 1:])), text(6))) == ["WD111"]
    assert not codes(watch(Language(lambda t: (t, F.pad(t, (0, 1), value=-100)[:, 1:])), text(14)))
    assert not codes(watch(Language(lambda t: (t[:, :-1], t[:, 1:]), ignore=0), text(6)))
    assert not codes(watch(Language(lambda t: (t[:, :-1], t[:, 1:])), text(14)))


class Tagger(Classifier):
    """As many positions as classes, so that torch cannot tell the axes apart."""

    def __init__(self, moved: bool) -> None:
        super().__init__(nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12)))
        self.moved = moved

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        (ids,) = batch
        scores = self.net(ids)
        return F.cross_entropy(scores.transpose(1, 2) if self.moved else scores, (ids + 1) % 12)


@pytest.mark.parametrize("moved", [True, False], ids=["quiet", "fires"])
def test_classes_on_another_axis_of_the_same_length(moved: bool) -> None:
    dog = watched(Tagger(moved), loader(torch.randint(0, 12, (64, 12))), max_steps=2)
    assert ("WD103" in codes(dog)) == (not moved)
    assert_awake(dog)


ROWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "channels last": (lambda z: z.permute(0, 2, 3, 1).reshape(-1, 6), False),
    "cut as they lie": (lambda z: z.view(len(z), -1, 6).flatten(0, 1), True),
    "columns of the map": (lambda z: z.flatten(0, 2), False),
    "all of the map": (lambda z: z.flatten(1), False),
    "as many classes as outputs, cut": (lambda z: z.view(-1, 18), True),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_scores_of_three_anchors(name: str) -> None:
    rows, torn = ROWS[name]

    class Anchors(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = rows(self.net(batch[0]))
            return F.cross_entropy(scores, torch.randint(0, 5, (len(scores),)))

    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 18, 1))
    dog = watched(Anchors(net), loader(torch.randn(64, 3, 5, 5)), max_steps=2)
    assert ("WD103" in codes(dog)) == torn
    assert_awake(dog)
