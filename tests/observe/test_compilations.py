"""Compiled code that is compiled again and again, in real runs."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, assert_awake, blobs, codes, loader, mlp, watched

COUNTED = pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="this torch does not count what Dynamo leaves"
)


@pytest.fixture(autouse=True)
def _as_if_new() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.factor = mlp(), 1.0

    def forward(self, x: Tensor, factor: Any = None) -> Tensor:
        return self.net(x) * (self.factor if factor is None else factor)


class Annealed(Classifier):
    """The scores are scaled by another number in each step, which ``give`` hands over."""

    def __init__(self, give: Callable[[Scaled, float], Any], net: nn.Module | None = None, **kwargs: Any) -> None:
        super().__init__(Scaled() if net is None else net)
        self.give, self.made = give, torch.compile(self.net, backend="eager", **kwargs)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.cross_entropy(self.made(batch[0], self.give(self.net, 0.99**batch_idx)), batch[1])


def as_argument(net: Scaled, factor: float) -> Any:
    return factor


def as_attribute(net: Scaled, factor: float) -> Any:
    net.factor = factor


def as_tensor(net: Scaled, factor: float) -> Any:
    return torch.tensor(factor)


def fixed(net: Scaled, factor: float) -> Any:
    return None


class Layers(nn.Module):
    """Many layers of one class, each compiled for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(20, 20) for _ in range(12))
        self.head = nn.Linear(20, 10)
        self.made = [torch.compile(layer, backend="eager") for layer in self.layers]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.made:
            x = x + layer(x).relu() / 12
        return self.head(x)


class Lengths(Classifier):
    """Batches of several sizes, each of which may be another graph."""

    def __init__(self, sizes: int) -> None:
        super().__init__()
        self.sizes, self.made = sizes, torch.compile(self.net, backend="eager", dynamic=False)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        n = 32 - batch_idx % self.sizes
        return F.cross_entropy(self.made(batch[0][:n]), batch[1][:n])


def fit(module: Classifier, **kwargs: Any) -> Any:
    return watched(module, loader(*blobs(640), drop_last=True), max_steps=20, **kwargs)


@COUNTED
@pytest.mark.parametrize("give", [as_argument, as_attribute], ids=lambda f: f.__name__)
def test_one_function_compiled_until_dynamo_gives_up(give: Any) -> None:
    dog = fit(Annealed(give, dynamic=False))
    assert codes(dog) == ["WD410"]
    (alert,) = dog.alerts
    assert alert.message.startswith("forward reached Dynamo's limit")
    assert alert.subjects[0].endswith(f"test_compilations.py:{inspect.getsourcelines(Scaled.forward)[1]}")
    assert "factor" in alert.hint


@pytest.mark.parametrize(
    "build",
    [
        lambda: Annealed(as_argument),
        lambda: Annealed(as_tensor, dynamic=False),
        lambda: Annealed(fixed, dynamic=False),
        lambda: Classifier(Layers()),
        lambda: Lengths(4),
        lambda: Classifier(torch.compile(mlp(), backend="eager")),
    ],
    ids=["symbolic", "tensor", "constant", "many-layers", "few-lengths", "plain"],
)
def test_code_that_settles_is_quiet(build: Callable[[], Classifier]) -> None:
    dog = fit(build(), validation=loader(*blobs(48)))
    assert_awake(dog)
    assert not codes(dog)
    assert "WD410" in dog.summary.judged


@COUNTED
def test_what_another_fit_gave_up_is_not_this_ones() -> None:
    assert codes(fit(Annealed(as_argument, dynamic=False))) == ["WD410"]
    assert not codes(fit(Annealed(fixed, dynamic=False)))
