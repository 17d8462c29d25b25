"""What torch or the user does otherwise when somebody looks on: the run is the same run, and as often called."""

import copy
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .runs import Classifier, blobs, codes, loader, watched
from .test_unusual import assert_unharmed


class Encoder(nn.Module):
    """Features as a sequence; in eval mode torch has a fused path for it, which it leaves where somebody looks on."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.enter, self.leave = nn.Linear(1, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(x[..., None])).mean(1))


class Distilled(Classifier):
    """A teacher in eval mode: registered, and put to it within the step, or kept out of the module."""

    def __init__(self, registered: bool) -> None:
        super().__init__(Encoder(), lr=1e-2)
        teacher = copy.deepcopy(self.net).requires_grad_(False)
        self.teacher = teacher if registered else None
        self.kept = [teacher.eval()] if not registered else [teacher]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        with torch.no_grad():
            target = self.kept[0].eval()(x)
        scores = self.net(x)
        return F.cross_entropy(scores, y) + F.mse_loss(scores, target)


@pytest.mark.parametrize("registered", [True, False])
def test_a_teacher_in_eval_mode_takes_the_same_path(registered: bool) -> None:
    assert_unharmed(lambda: Distilled(registered))


@pytest.fixture
def wrap() -> Iterator[Callable[[str, Callable[[Any], Any]], list[int]]]:
    """Puts a wrapper around a function of ``torch.nn.functional`` and counts its calls."""
    with pytest.MonkeyPatch.context() as patch:

        def around(name: str, change: Callable[[Any], Any]) -> list[int]:
            real, calls = getattr(F, name), [0]

            @wraps(real)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                calls[0] += 1
                return change(real(*args, **kwargs))

            patch.setattr(F, name, wrapper)
            return calls

        yield around


@pytest.mark.parametrize("name", ["cross_entropy", "relu", "dropout", "batch_norm", "layer_norm", "linear"])
def test_a_wrapped_function_runs_as_often(name: str, wrap: Any) -> None:
    calls = wrap(name, lambda out: out * 1.1)
    counts = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.dropout(F.relu(self.norm(self.first(x))), 0.1, self.training)
            return self.last(F.layer_norm(hidden, (32,)))

    class Counted(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            before = calls[0]
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            counts.append(calls[0] - before)
            return loss

    assert_unharmed(lambda: Counted(Net()))
    assert len(set(counts)) == 1


class Noisy(Tensor):
    """Draws a random number whenever it is used."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.rand(1)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_kind_of_tensor_that_notices_its_use() -> None:
    class Used(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.cross_entropy(self.net(batch[0].as_subclass(Noisy)), batch[1])

    assert_unharmed(Used)


def test_a_wrapped_loss_is_known_all_the_same(wrap: Any) -> None:
    wrap("cross_entropy", lambda out: out)

    class Twice(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.cross_entropy(self.net(batch[0]).softmax(1), batch[1])

    assert "WD102" in codes(watched(Twice(), loader(*blobs()), max_steps=4))
