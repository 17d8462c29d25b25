"""Parameters under a real Trainer: each fault is seen, healthy practice is not."""

from typing import Any

import lightning as L
import pytest
import torch
from torch import nn

from sanity_watchdog import ParameterWatch, SanityWatchdog
from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, assert_awake, blobs, codes, loader, mlp, trainer, watched


def watch() -> SanityWatchdog:
    return ParameterWatch(fail_on=None)


class Edit(L.Callback):
    """Edits a parameter after one batch, or after every batch from there on."""

    def __init__(self, edit: Any, at: int = 4, again: bool = False) -> None:
        self.edit, self.at, self.again = edit, at, again

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.at or (self.again and batch_idx > self.at):
            with torch.no_grad():
                self.edit(module.net)


def zero(rows: slice = slice(None)) -> Any:
    def edit(net: nn.Sequential) -> None:
        net[0].weight[rows].zero_()

    return edit


def prune(net: nn.Sequential) -> None:
    weight = net[0].weight
    weight[weight.abs() < weight.abs().median()] = 0


def clip(net: nn.Sequential) -> None:
    for p in net.parameters():
        p.clamp_(-0.01, 0.01)


def spoil(net: nn.Sequential) -> None:
    net[0].weight[3, 3] = torch.nan


def edited(edit: Edit) -> SanityWatchdog:
    torch.manual_seed(0)
    dog = watch()
    trainer(dog, edit, max_steps=12).fit(Classifier(), loader(*blobs(512)))
    return dog


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        pytest.param(Edit(zero(), at=4), ["WD301"], id="zeroed-once"),
        pytest.param(Edit(zero(), at=3, again=True), ["WD301"], id="zeroed-again-and-again"),
        pytest.param(Edit(zero(slice(0, 16)), at=4), ["WD301"], id="half-of-the-units"),
        pytest.param(Edit(zero(), at=11), ["WD301"], id="zeroed-after-the-last-step"),
        pytest.param(Edit(zero(), at=3), ["WD301"], id="zeroed-and-regrown"),
        pytest.param(Edit(spoil, at=4), ["WD303"], id="one-nan"),
    ],
)
def test_an_edited_parameter_is_named(edit: Edit, expected: list[str]) -> None:
    dog = edited(edit)
    assert codes(dog) == expected
    assert dog.alerts[0].subjects[0] == "net.0.weight"
    assert_awake(dog, 3)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(Edit(prune, at=4), id="pruned-by-magnitude"),
        pytest.param(Edit(prune, at=4, again=True), id="pruned-and-held"),
        pytest.param(Edit(clip, at=0, again=True), id="clipped-critic"),
        pytest.param(Edit(lambda net: None), id="untouched"),
    ],
)
def test_deliberate_edits_are_quiet(edit: Edit) -> None:
    dog = edited(edit)
    assert codes(dog) == []
    assert_awake(dog, 3)


class Adapter(nn.Module):
    """A frozen layer with a low-rank update."""

    def __init__(self, both_zero: bool) -> None:
        super().__init__()
        self.base = nn.Linear(20, 10).requires_grad_(False)
        self.a = nn.Parameter(torch.zeros(20, 4) if both_zero else torch.randn(20, 4) / 4)
        self.b = nn.Parameter(torch.zeros(4, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.a @ self.b


class ReZero(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.alpha = nn.Linear(20, 20), nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.alpha * self.body(x)


def zeroed_head() -> nn.Sequential:
    net = mlp()
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[2].bias)
    return net


def zeroed_layer() -> nn.Sequential:
    net = mlp()
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    return net


def all_zero() -> nn.Sequential:
    net = mlp()
    for p in net.parameters():
        nn.init.zeros_(p)
    return net


def constant() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 10))
    for p in (net[0].weight, net[2].weight):
        nn.init.constant_(p, 0.05)
    nn.init.zeros_(net[0].bias)
    nn.init.zeros_(net[2].bias)
    nn.init.constant_(net[4].weight, 0.05)
    return net


def pruned() -> nn.Sequential:
    net = mlp()
    nn.utils.prune.l1_unstructured(net[0], "weight", 0.5)
    return net


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda: Adapter(both_zero=True), {"WD302"}, id="both-factors-zero"),
        pytest.param(all_zero, {"WD302"}, id="all-zero"),
        pytest.param(zeroed_layer, {"WD302"}, id="zeroed-layer"),
        pytest.param(constant, {"WD304"}, id="constant"),
        pytest.param(lambda: Adapter(both_zero=False), set(), id="lora"),
        pytest.param(zeroed_head, set(), id="zeroed-head"),
        pytest.param(lambda: nn.Sequential(ReZero(), ReZero(), nn.Linear(20, 10)), set(), id="rezero"),
        pytest.param(pruned, set(), id="pruned"),
        pytest.param(mlp, set(), id="plain"),
    ],
)
def test_initialisation(build: Any, expected: set[str]) -> None:
    dog = watched(Classifier(build()), loader(*blobs(512)), watchdog=watch(), max_steps=12)
    assert set(codes(dog)) & {"WD301", "WD302", "WD303", "WD304"} == expected
    assert_awake(dog, 3)


@pytest.mark.parametrize("build", [zeroed_head, constant])
def test_what_a_rate_of_zero_keeps_in_place_is_no_fault_of_its_initialisation(build: Any) -> None:
    dog = watched(Classifier(build(), lr=0.0), loader(*blobs(512)), watchdog=watch(), max_steps=14)
    assert not set(codes(dog)) & {"WD302", "WD304"}
    assert_awake(dog, 3)


def test_nan_at_the_start_is_known_before_the_first_step() -> None:
    net = mlp()
    with torch.no_grad():
        spoil(net)
    seen = []
    dog = ParameterWatch(fail_on=None, on_alert=lambda alert: seen.append((alert.code, alert.step)))
    watched(Classifier(net), watchdog=dog, max_steps=2)
    assert ("WD303", 0) in seen
    assert dog.alerts[0].severity is Severity.ERROR


@pytest.mark.parametrize("hook", ["on_train_start", "on_train_epoch_start"])
def test_initialising_in_a_hook_before_the_first_batch_is_quiet(hook: str) -> None:
    module = Classifier()

    def initialise() -> None:
        if module.current_epoch == 0:
            for layer in (module.net[0], module.net[2]):
                torch.nn.init.kaiming_uniform_(layer.weight)
                torch.nn.init.zeros_(layer.bias)

    setattr(module, hook, initialise)
    dog = watch()
    trainer(dog).fit(module, loader(*blobs()))
    assert codes(dog) == []
    assert_awake(dog, 3)
