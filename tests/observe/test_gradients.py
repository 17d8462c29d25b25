"""Gradients in real runs: not finite, vanishing, exploding, uncleared, discarded, silent, saturated."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.observe.graph import risky_operations
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, trainer, watched


def only() -> SanityWatchdog:
    return SanityWatchdog(fail_on=None, select=["WD2"])


def alert(dog: SanityWatchdog, code: str) -> Alert:
    (found,) = (a for a in dog.alerts if a.code == code)
    return found


def stack(act: type[nn.Module], depth: int, width: int = 32) -> nn.Sequential:
    layers = [m for i in range(depth) for m in (nn.Linear(20 if i == 0 else width, width), act())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class RootAtZero(nn.Module):
    """The derivative of the root is infinite at zero, its value is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(20, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.body(x) * 0.0).sqrt())


def test_a_nan_gradient_names_parameter_and_operation_before_the_first_step() -> None:
    module = Classifier(RootAtZero())
    before = {n: p.clone() for n, p in module.named_parameters()}
    dog = SanityWatchdog(fail_on="error", select=["WD211"])
    with pytest.raises(Exception, match="WD211"):
        trainer(dog).fit(module, loader(*blobs()))
    found = alert(dog, "WD211")
    assert found.step == 0
    assert found.subjects == ("net.body.bias", "net.body.weight")
    assert "sqrt" in found.message
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())


def test_a_later_nan_gradient_names_them_too() -> None:
    class Later(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            out = self.net(x).pow(2).sum(1) * (0.0 if batch_idx >= 3 else 1.0)
            loss: Tensor = F.mse_loss(out.sqrt(), y.float())
            return loss

    dog = watched(Later(), watchdog=only(), max_steps=12, max_epochs=9)
    found = alert(dog, "WD211")
    assert found.step == 3
    assert "sqrt" in found.message


def test_a_nan_gradient_in_the_last_step_is_not_lost() -> None:
    class Last(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            out = self.net(x).pow(2).sum(1) * (0.0 if batch_idx == 5 else 1.0)
            loss: Tensor = F.mse_loss(out.sqrt(), y.float())
            return loss

    assert codes(watched(Last(), watchdog=only(), max_steps=6))[0] == "WD211"


def test_what_is_unfrozen_later_is_looked_at() -> None:
    class Unfreezes(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.ModuleDict({"body": nn.Linear(20, 16), "head": nn.Linear(16, 10)}))
            self.net["body"].requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            if batch_idx == 2:
                self.net["body"].requires_grad_(True)
                self.optimizers().add_param_group({"params": self.net["body"].parameters()})
            return F.cross_entropy(self.net["head"]((self.net["body"](x) * 0.0).sqrt()), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net["head"].parameters(), 1e-3)

    found = alert(watched(Unfreezes(), watchdog=only()), "WD211")
    assert found.step == 2
    assert set(found.subjects) == {"net.body.bias", "net.body.weight"}


def test_only_operations_on_the_way_are_suspected() -> None:
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    loss = (a.sqrt() + b.log().exp()).sum()
    assert risky_operations(loss.grad_fn, id(a)) == ("sqrt",)
    assert risky_operations(loss.grad_fn, id(b)) == ("exp", "log")
    assert risky_operations(loss.grad_fn, 0) == ()


@pytest.mark.parametrize(
    ("act", "depth", "vanishes"), [(nn.Sigmoid, 12, True), (nn.ReLU, 3, False), (nn.Tanh, 8, False)]
)
def test_vanishing_along_the_depth(act: type[nn.Module], depth: int, vanishes: bool) -> None:
    net = stack(act, depth)
    if act is nn.Tanh:
        for layer in net[::2]:
            nn.init.xavier_normal_(layer.weight, 5 / 3)
    dog = watched(Classifier(net), watchdog=only())
    assert_awake(dog)
    assert codes(dog) == (["WD212"] if vanishes else [])


@pytest.mark.parametrize("act", [nn.SELU, nn.Tanh])
def test_what_has_vanished_is_no_code_that_restores_weights(act: type[nn.Module]) -> None:
    dog = watched(Classifier(stack(act, 100)), max_steps=16, max_epochs=9)
    assert codes(dog) == ["WD212"]
    assert "WD316" in dog.summary.judged


class Recurrent(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.inp, self.rec, self.head = nn.Linear(1, 32), nn.Linear(32, 32, bias=False), nn.Linear(32, 10)
        nn.init.orthogonal_(self.rec.weight, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 32)
        for i in range(20):
            h = F.relu(self.inp(x[:, i : i + 1]) + self.rec(h))
        return self.head(h)


@pytest.mark.parametrize(("gain", "explodes"), [(4.0, True), (1.0, False)])
def test_exploding_recurrence(gain: float, explodes: bool) -> None:
    dog = watched(Classifier(Recurrent(gain), optimizer=torch.optim.SGD, lr=1e-6), watchdog=only())
    assert ("WD213" in codes(dog)) is explodes


def test_a_spike_names_its_batch() -> None:
    x, y = blobs(32 * 14)
    x[32 * 13 :] *= 1e6
    module = Classifier(optimizer=torch.optim.SGD, lr=1e-3)
    dog = watched(module, loader(x, y, shuffle=False), watchdog=only(), max_steps=14)
    assert "batch 13" in alert(dog, "WD213").message


class Order(Manual):
    """Manual optimisation in any order."""

    order = "zero backward step"
    set_to_none = True

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        loss = self.loss(self.net(batch[0]), batch[1])
        for call in self.order.split():
            if call == "zero":
                optimizer.zero_grad(set_to_none=self.set_to_none)
            elif call == "backward":
                self.manual_backward(loss)
            else:
                optimizer.step()


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("zero backward step", []),
        ("backward step zero", []),
        ("backward step", ["WD216"]),
        ("backward zero step", ["WD217"]),
    ],
)
def test_the_order_of_a_manual_loop(order: str, expected: list[str], set_to_none: bool) -> None:
    module = Order(optimizer=torch.optim.SGD, lr=1e-2)
    module.order, module.set_to_none = order, set_to_none
    dog = watched(module, watchdog=only())
    assert_awake(dog, 2)
    assert codes(dog) == expected


def test_a_module_that_never_clears_in_automatic_optimisation() -> None:
    class Never(Classifier):
        def optimizer_zero_grad(self, *args: Any) -> None:
            pass

    assert codes(watched(Never(), watchdog=only())) == ["WD216"]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_a_hook_that_clears_before_the_update(optimizer: Any) -> None:
    class Clears(Classifier):
        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            for p in self.parameters():
                p.grad.zero_()

    dog = watched(Clears(optimizer=optimizer), watchdog=only())
    assert codes(dog) == ["WD217"]
    assert alert(dog, "WD217").severity is Severity.ERROR


def test_clipping_to_next_to_nothing_is_a_warning() -> None:
    dog = watched(Classifier(), watchdog=only(), gradient_clip_val=1e-9)
    assert alert(dog, "WD217").severity is Severity.WARNING
    assert "clipped" in alert(dog, "WD217").hint


def test_an_optimizer_that_clears_gradients_itself_is_fine() -> None:
    class Clearing(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            loss = super().step(closure)
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.zero_()
            return loss

    dog = watched(Classifier(optimizer=Clearing, lr=0.1), watchdog=only())
    assert_awake(dog)
    assert codes(dog) == []


class Gan(Manual):
    """Two optimizers; the generator's backward fills the discriminator's gradients."""

    def __init__(self) -> None:
        super().__init__(nn.ModuleDict({"g": mlp(8, 20), "d": mlp(20, 1)}))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        g, d = self.optimizers()
        real, fake = batch[0], self.net["g"](torch.randn(len(batch[0]), 8))
        d.zero_grad()
        self.manual_backward(F.softplus(-self.net["d"](real)).mean() + F.softplus(self.net["d"](fake.detach())).mean())
        d.step()
        g.zero_grad()
        self.manual_backward(F.softplus(-self.net["d"](fake)).mean())
        g.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(self.net[k].parameters(), 1e-3) for k in ("g", "d")]


class Accumulates(Manual):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(self.loss(self.net(batch[0]), batch[1]) / 4)
        if batch_idx % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


class Alternates(Manual):
    """Two heads in turn, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__(nn.ModuleList([mlp(), mlp()]))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        turn = batch_idx % 2
        optimizer = self.optimizers()[turn]
        optimizer.zero_grad(set_to_none=False)
        self.manual_backward(self.loss(self.net[turn](batch[0]), batch[1]))
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(net.parameters(), 1e-3) for net in self.net]


class LowRank(nn.Module):
    """A frozen layer and a low-rank one beside it that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.a, self.b = nn.Linear(20, 10), nn.Linear(20, 4, bias=False), nn.Linear(4, 10, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.b(self.a(x))


class Cancels(nn.Module):
    """Attention by hand: the key's bias has no gradient, since it cancels in the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(20, 20) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None] + x[:, :, None] / 20
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return self.out(scores.softmax(-1) @ self.v(x)).mean(1)[:, :10]


HEALTHY = {
    "gan": (Gan, {}),
    "manual accumulation": (Accumulates, {}),
    "alternating heads": (Alternates, {}),
    "accumulation": (Classifier, {"accumulate_grad_batches": 3}),
    "low rank": (lambda: Classifier(LowRank()), {}),
    "cancelling bias": (lambda: Classifier(Cancels()), {}),
    "cancelling bias in half": (lambda: Classifier(Cancels()), {"precision": "bf16-true"}),
    "lbfgs": (lambda: Classifier(optimizer=torch.optim.LBFGS, line_search_fn="strong_wolfe", max_iter=4), {}),
    "clipped": (lambda: Classifier(optimizer=torch.optim.SGD), {"gradient_clip_val": 0.01}),
    "wide relu": (lambda: Classifier(mlp(20, 10, 512)), {}),
    "sum": (lambda: Classifier(loss=lambda x, y: F.cross_entropy(x, y, reduction="sum"), lr=1e-3), {}),
    "sparse": (lambda: Classifier(Sparse(), optimizer=torch.optim.SparseAdam), {}),
}


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 10, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.table((x.abs() * 50).long().clamp(0, 499)).mean(1)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_practice_is_quiet(name: str) -> None:
    make, settings = HEALTHY[name]
    dog = watched(make(), watchdog=only(), **{"max_steps": 24, "max_epochs": 30, **settings})
    assert_awake(dog)
    assert codes(dog) == []


def test_batches_of_two_do_not_make_units_dead() -> None:
    dog = watched(Classifier(mlp(20, 10, 128)), loader(*blobs(), batch_size=2), watchdog=only(), max_steps=40)
    assert codes(dog) == []
    assert "WD214" in dog.summary.judged


def test_units_that_never_fire() -> None:
    net = stack(nn.ReLU, 2)
    nn.init.constant_(net[0].bias, -8.0)
    dog = watched(Classifier(net), watchdog=only(), max_steps=16, max_epochs=9)
    assert "WD214" in codes(dog)
    assert "net.0.bias" in alert(dog, "WD214").subjects


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x

    def right_inverse(self, x: Tensor) -> Tensor:
        return x / 2


@pytest.mark.parametrize("names", [("weight",), ("bias",), ("bias", "weight")], ids="-".join)
@pytest.mark.parametrize("dead", [True, False])
def test_units_behind_parametrizations(names: tuple[str, ...], dead: bool) -> None:
    net = stack(nn.ReLU, 2)
    if dead:
        nn.init.constant_(net[0].bias, -8.0)
    for layer in net:
        for name in names if isinstance(layer, nn.Linear) else ():
            parametrize.register_parametrization(layer, name, Doubled())
    dog = watched(Classifier(net), watchdog=only(), max_steps=16, max_epochs=9)
    assert ("WD214" in codes(dog)) is dead
    assert "WD214" in dog.summary.judged


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm])
def test_biases_that_cancel_between_real_and_made_up(norm: Any) -> None:
    class Critic(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            real, made = batch[0].abs() + 9, batch[0].flip(1).abs() + 9  # each unit has one sign on all of them
            return F.relu(1 - self.net(real)).mean() + F.relu(1 + self.net(made)).mean()

    net = nn.Sequential(norm(nn.Linear(20, 64)), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    nn.init.normal_(net[2].weight, std=0.001)
    dog = watched(Critic(net, lr=1e-5), watchdog=only(), max_steps=40, max_epochs=9)
    assert net[0].bias.grad.eq(0).float().mean() > 0.69
    assert "WD214" not in codes(dog)
    assert "WD214" in dog.summary.judged


class Parts(nn.Module):
    """Nine outputs of ten are multiplied by zero, behind an activation or without one."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.first, self.activation, self.last = nn.Linear(20, 60), activation, nn.Linear(60, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x)) * (torch.arange(60) % 10 == 0))


class OwnActivation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0]


class Hidden(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return OwnActivation.apply(x)


@pytest.mark.parametrize(("activation", "judged"), [(nn.Identity(), False), (nn.ReLU(), True), (Hidden(), True)])
def test_only_an_activation_silences_units(activation: nn.Module, judged: bool) -> None:
    dog = watched(Classifier(Parts(activation)), watchdog=only(), max_steps=16, max_epochs=9)
    assert ("WD214" in codes(dog)) is judged


@pytest.mark.parametrize(("scale", "flat"), [(100.0, True), (1.0, False)])
def test_saturated_tanh(scale: float, flat: bool) -> None:
    x, y = blobs()
    dog = watched(Classifier(stack(nn.Tanh, 2)), loader(x * scale, y), watchdog=only())
    assert ("WD215" in codes(dog)) is flat


def test_a_part_that_is_used_now_and_then_is_not_judged_by_a_few_batches() -> None:
    class Seldom(Classifier):
        """Sixteen towers, each seen by one batch of two in sixteen."""

        def __init__(self) -> None:
            super().__init__(nn.ModuleList([mlp(20, 10, 64) for _ in range(16)]))

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return F.cross_entropy(self.net[batch_idx % 16](batch[0]), batch[1])

    dog = watched(Seldom(), loader(*blobs(), batch_size=2), watchdog=only(), max_steps=60)
    assert codes(dog) == []
