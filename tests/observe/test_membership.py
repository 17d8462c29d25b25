"""Who is trained: module, optimizer and loss under a real Trainer."""

import contextlib
import copy
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import BackboneFinetuning, BaseFinetuning, ModelPruning
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from sanity_watchdog.observe.leaves import homes, leaves
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, trainer, watched

SELECT = ("WD311", "WD312", "WD313", "WD314", "WD315")


def watch(**kwargs: Any) -> SanityWatchdog:
    return SanityWatchdog(fail_on=None, select=SELECT, **kwargs)


class Parts(Classifier):
    """A backbone and a head, tied together by ``join``; the optimizer gets what ``held`` gives."""

    def __init__(self, join: Any = None, held: Any = None) -> None:
        super().__init__(nn.Identity())
        self.backbone = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head, self.aux = nn.Linear(32, 10), nn.Linear(32, 4)
        self.join, self.held = join or (lambda h: h), held

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        h = self.join(self.backbone(x))
        return F.cross_entropy(self.head(h), y) + 0.1 * self.aux(h).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.held(self) if self.held else self.parameters(), 1e-3)


def replaced() -> Parts:
    module = Parts()

    def held(self: Parts) -> Any:
        parameters = list(self.parameters())
        self.head = nn.Linear(32, 10)
        return parameters

    module.held = held
    return module


def frozen(keep: str) -> Parts:
    module = Parts()
    for name, p in module.named_parameters():
        p.requires_grad_(name == keep)
    return module


class Box:
    """A plain object that holds a layer."""

    def __init__(self, inner: nn.Module) -> None:
        self.inner = inner


class Hidden(nn.Module):
    """Keeps its first layer where ``place`` puts it."""

    def __init__(self, place: Any) -> None:
        super().__init__()
        self.kept, self.head = place(nn.Linear(20, 32)), nn.Linear(32, 10)

    def layer(self) -> nn.Module:
        kept = self.kept
        return kept.inner if isinstance(kept, Box) else next(iter(kept.values() if isinstance(kept, dict) else kept))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.layer()(x)))


class Made(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(nn.Linear(20, 32)(x)))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.scale = mlp(), torch.ones(1, requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


@pytest.mark.parametrize(
    ("build", "expected", "subject"),
    [
        pytest.param(lambda: Parts(held=lambda m: m.head.parameters()), "WD311", "backbone.2.weight", id="head-only"),
        pytest.param(replaced, "WD312", "head.weight", id="replaced-head"),
        pytest.param(lambda: Parts(held=lambda m: Parts().parameters()), "WD312", "backbone.0.weight", id="twin"),
        pytest.param(lambda: Classifier(Hidden(lambda m: [m])), "WD313", "net.kept[0].weight", id="list"),
        pytest.param(lambda: Classifier(Hidden(lambda m: {"a": m})), "WD313", "net.kept['a'].weight", id="dict"),
        pytest.param(lambda: Classifier(Hidden(Box)), "WD313", "net.kept.inner.weight", id="object"),
        pytest.param(lambda: Classifier(Made()), "WD313", "made in the step (32, 20)", id="made-in-forward"),
        pytest.param(lambda: Classifier(Scaled()), "WD313", "net.scale", id="plain-tensor"),
        pytest.param(lambda: Parts(join=lambda h: h.detach()), "WD314", "backbone.0.weight", id="detached"),
        pytest.param(lambda: frozen("head.bias"), "WD315", "backbone.0.weight", id="one-bias-left"),
    ],
)
def test_a_fault_of_membership_is_named_alone(build: Any, expected: str, subject: str) -> None:
    dog = watched(build(), loader(*blobs(480)), watchdog=watch(), max_steps=13)
    assert codes(dog) == [expected]
    assert subject in dog.alerts[0].subjects
    assert_awake(dog, 4)


def test_membership_is_known_before_the_first_step() -> None:
    seen: list[tuple[str, int]] = []
    dog = watch(on_alert=lambda alert: seen.append((alert.code, alert.step)))
    watched(Parts(held=lambda m: m.head.parameters()), watchdog=dog, max_steps=2)
    assert seen == [("WD311", 0)]


class Normed(Parts):
    """A backbone whose BatchNorm stays trainable when Lightning freezes it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(held=lambda m: m.head.parameters(), **kwargs)
        self.backbone, self.aux = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32)), nn.Identity()


class OnlyThaws(BaseFinetuning):
    """Forgets the optimizer."""

    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(pl_module.backbone)

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.make_trainable(pl_module.backbone)
            optimizer.add_param_group({"params": list(pl_module.backbone[1].parameters())})


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        pytest.param(lambda: BackboneFinetuning(1, backbone_initial_lr=1e-3), [], id="join"),
        pytest.param(lambda: BackboneFinetuning(5), [("WD311", Severity.INFO, 19)], id="too-late"),
        pytest.param(
            lambda: BackboneFinetuning(1, backbone_initial_lr=1e-3, train_bn=False),
            [("WD311", Severity.ERROR, 19)],
            id="left-out",
        ),
        pytest.param(OnlyThaws, [("WD311", Severity.ERROR, 19)], id="forgotten"),
    ],
)
def test_what_joins_the_optimizer_later_is_waited_for(callback: Any, told: list[Any]) -> None:
    dog = watch()
    trainer(dog, callback(), max_epochs=2, max_steps=-1).fit(Normed(), loader(*blobs(320)))
    assert [(a.code, a.severity, a.step) for a in dog.alerts] == told


def test_a_layer_that_no_callback_freezes_is_told_at_once() -> None:
    seen: list[Any] = []
    dog = watch(on_alert=seen.append)
    trainer(dog, BackboneFinetuning(1), max_steps=2).fit(Normed(join=nn.Linear(32, 32)), loader(*blobs()))
    assert [(a.code, a.severity, a.step, a.subjects) for a in seen] == [
        ("WD311", Severity.ERROR, 0, ("join.weight", "join.bias"))
    ]


def test_everything_frozen_is_said_before_backward_fails() -> None:
    dog = watch()
    with pytest.raises(RuntimeError, match="does not require grad"):
        watched(frozen(""), watchdog=dog, max_steps=2)
    assert codes(dog) == ["WD315"]
    assert dog.alerts[0].severity is Severity.ERROR


class Copies(Classifier):
    """A moving average and a teacher that require gradients, in no optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.average, self.teacher = copy.deepcopy(self.net), [copy.deepcopy(self.net)]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with torch.no_grad():
            for a, b in zip(self.average.parameters(), self.net.parameters(), strict=True):
                a.lerp_(b, 0.01)
        soft = self.teacher[0](batch[0]).detach().softmax(-1)
        return super().training_step(batch, batch_idx) + F.cross_entropy(self.net(batch[0]), soft)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), 1e-3)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(20, 10)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.b(torch.relu(self.a(x))))


class Heads(Classifier):
    """Several tasks, one a batch."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(20, 10) for _ in range(count))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return F.cross_entropy(self.heads[batch_idx % len(self.heads)](batch[0]) + self.net(batch[0]), batch[1])


class Penalty(Classifier):
    """A gradient penalty: the input is a leaf that requires a gradient, and no parameter."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x = batch[0].clone().requires_grad_()
        out = self.net(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return F.cross_entropy(out, batch[1]) + slope.square().mean()


class Listed(Manual):
    """A network in a plain list, held by the optimizer: it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.more = [nn.Linear(20, 20)]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step((self.more[0](batch[0]), batch[1]), batch_idx)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam([*self.parameters(), *self.more[0].parameters()], 1e-3)


class Lazy(Classifier):
    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(10)))


class Adversarial(L.LightningModule):
    """Two players in manual optimisation; the generator's loss fills the other's gradients."""

    def __init__(self, swapped: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.g, self.d, self.swapped = mlp(8, 20), mlp(20, 1), swapped

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, _ = batch
        g, d = self.optimizers()
        fake, one = self.g(torch.randn(len(x), 8)), torch.ones(len(x), 1)
        d.zero_grad()
        loss = F.binary_cross_entropy_with_logits
        self.manual_backward(loss(self.d(x), one) + loss(self.d(fake.detach()), one * 0))
        d.step()
        g.zero_grad()
        self.manual_backward(loss(self.d(fake), one))
        g.step()

    def configure_optimizers(self) -> Any:
        d = self.g if self.swapped else self.d
        return torch.optim.Adam(self.g.parameters(), 1e-3), torch.optim.Adam(d.parameters(), 1e-3)


def frozen_first() -> Classifier:
    module = Classifier()
    module.net[0].requires_grad_(False)
    return module


def temperature() -> Classifier:
    module = Classifier()
    module.requires_grad_(False)
    module.temperature = nn.Parameter(torch.ones(1))
    module.loss = lambda z, y: F.cross_entropy(z / module.temperature, y)
    return module


def probe(evaluating: bool) -> Parts:
    module = Parts(held=lambda m: [*m.head.parameters(), *m.aux.parameters()])
    if evaluating:
        module.backbone.eval()
    else:
        module.backbone.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(Classifier, id="plain"),
        pytest.param(Manual, id="manual"),
        pytest.param(Copies, id="average-and-teacher"),
        pytest.param(lambda: Classifier(Tied()), id="tied"),
        pytest.param(lambda: Heads(2), id="two-heads"),
        pytest.param(lambda: Heads(5), id="five-heads"),
        pytest.param(Penalty, id="gradient-penalty"),
        pytest.param(Listed, id="unregistered-but-trained"),
        pytest.param(Lazy, id="lazy"),
        pytest.param(Adversarial, id="adversarial"),
        pytest.param(frozen_first, id="frozen-inside-the-optimizer"),
        pytest.param(temperature, id="temperature-alone"),
        pytest.param(lambda: probe(evaluating=False), id="frozen-backbone"),
        pytest.param(lambda: probe(evaluating=True), id="backbone-in-eval-left-out"),
        pytest.param(
            lambda: Classifier(
                nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(20, 16)), nn.Linear(16, 10))
            ),
            id="parametrized",
        ),
    ],
)
def test_healthy_practice_is_quiet(build: Any) -> None:
    dog = watched(build(), loader(*blobs(480)), watchdog=watch(), max_steps=30 if build is Adversarial else 15)
    assert codes(dog) == []
    assert_awake(dog, 4)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param("ddp", ("WD314", Severity.ERROR, 0), id="stops"),
        pytest.param("ddp_find_unused_parameters_true", ("WD314", Severity.INFO, 5), id="goes-on"),
    ],
)
def test_distributed_data_parallel_and_an_unused_head(strategy: str, expected: tuple[Any, ...]) -> None:
    module, dog = Parts(), watch()
    module.spare = nn.Linear(32, 4)
    with contextlib.suppress(RuntimeError):
        trainer(dog, strategy=strategy, max_steps=6).fit(module, loader(*blobs(256)))
    assert [(a.code, a.severity, a.step) for a in dog.alerts] == [expected]


def test_pruning_in_the_middle_of_a_run_renames_and_is_quiet() -> None:
    prune = ModelPruning("l1_unstructured", amount=0.5)
    dog = SanityWatchdog(fail_on=None, select=("WD3",))
    trainer(dog, prune, max_epochs=3, max_steps=-1).fit(Classifier(), loader(*blobs(256)))
    assert codes(dog) == []
    assert_awake(dog, 6)


def test_the_wrong_parameters_in_one_of_two_optimizers() -> None:
    dog = watched(Adversarial(swapped=True), loader(*blobs(480)), watchdog=watch(), max_steps=20)
    assert codes(dog) == ["WD311"]
    assert set(dog.alerts[0].subjects) == {"d.0.weight", "d.0.bias", "d.2.weight", "d.2.bias"}


def test_a_spare_head_is_a_note() -> None:
    module = Parts()
    module.spare = nn.Linear(32, 4)
    dog = watched(module, loader(*blobs(480)), watchdog=watch(), max_steps=13)
    assert [(a.code, a.severity) for a in dog.alerts] == [("WD314", Severity.INFO)]
    assert dog.alerts[0].subjects == ("spare.weight", "spare.bias")


def test_a_part_that_joins_later_clears_the_alert() -> None:
    class Late(Parts):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.join = (lambda h: h.detach()) if batch_idx < 14 else (lambda h: h)
            return super().training_step(batch, batch_idx)

    dog = watched(Late(), loader(*blobs(960)), watchdog=watch(), max_steps=24)
    assert codes(dog) == ["WD314"]
    assert dog.alerts[0].last_step < 21


def test_a_resume_that_freezes_again_is_named(tmp_path: Any) -> None:
    first = trainer(max_steps=4, default_root_dir=tmp_path)
    first.fit(Parts(), loader(*blobs(256)))
    first.save_checkpoint(tmp_path / "last.ckpt")
    module = Parts()
    module.backbone.requires_grad_(False)
    dog = watch()
    trainer(dog, max_steps=8).fit(module, loader(*blobs(256)), ckpt_path=tmp_path / "last.ckpt")
    assert codes(dog) == ["WD315"]
    assert "backbone.0.weight" in dog.alerts[0].subjects


def test_the_walk_is_bounded_and_says_so() -> None:
    x = torch.ones(1, requires_grad=True)
    loss = x
    for _ in range(50):
        loss = loss * 2
    assert leaves(loss).hidden == ""
    assert len(leaves(loss).tensors) == 1
    assert "more than 10 nodes" in leaves(loss, limit=10).hidden


def test_a_reentrant_checkpoint_is_said_to_hide() -> None:
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    assert "reentrant" in leaves(checkpoint(layer, x, use_reentrant=True).sum()).hidden
    assert leaves(checkpoint(layer, x, use_reentrant=False).sum()).hidden == ""


def test_homes_are_found_through_cycles() -> None:
    module = Hidden(lambda m: [m])
    module.again = module.kept
    module.kept.append(module.kept)
    assert homes(module, [module.kept[0].weight])[id(module.kept[0].weight)].path == "kept[0].weight"


def test_a_run_without_optimizers_moves_its_parameters_by_hand() -> None:
    class ByHand(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            with torch.no_grad():
                for p in self.parameters():
                    p -= 0.1 * p.grad

        def configure_optimizers(self) -> None:
            return None

    dog = watched(ByHand(), max_steps=-1, max_epochs=2, limit_train_batches=16)
    assert_awake(dog)
    assert codes(dog) == []
    assert "no optimizer" in dog.summary.skipped["WD311"]
