"""Calls that stand alone, and their results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched


def masked(x: Tensor) -> Tensor:
    x.masked_fill(x > 0, 0.0)
    return x


def of_torch(x: Tensor) -> Tensor:
    torch.clamp(x, 0, 1)
    return x


def of_functions(x: Tensor) -> Tensor:
    F.normalize(x, dim=1)
    return x


def on_condition(x: Tensor) -> Tensor:
    if len(x):
        x.abs()
    return x


def in_place(x: Tensor) -> Tensor:
    x.clone().clamp_(0, 1)
    return x


def chained(x: Tensor) -> Tensor:
    x.detach().sum().item()
    return x


def named(x: Tensor) -> Tensor:
    _ = x.abs()
    return x


def listed(x: Tensor) -> Tensor:
    [row.mul(2) for row in x]
    return x


def returned(x: Tensor) -> Tensor:
    def twice() -> Tensor:
        return x.mul(2)

    twice()
    return x


def tried(x: Tensor) -> Tensor:
    try:
        x.view(-1)
    except RuntimeError:
        return x.contiguous()
    return x


def within_a_context(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.abs()
    return x


def converted_to_itself(x: Tensor) -> Tensor:
    x.to(torch.float32)
    return x


CASES: list[tuple[Callable[[Tensor], Tensor], str]] = [
    (masked, "masked_fill"),
    (of_torch, "clamp"),
    (of_functions, "normalize"),
    (on_condition, "abs"),
    (within_a_context, "abs"),
    *((case, "") for case in (in_place, chained, named, listed, returned, tried, converted_to_itself)),
]


@pytest.mark.parametrize(("does", "operation"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_only_what_nobody_takes_is_told(does: Callable[[Tensor], Tensor], operation: str) -> None:
    class Doing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.cross_entropy(self.net(does(batch[0])), batch[1])

    dog = watched(Doing(), loader(*blobs()), max_steps=6)
    assert_awake(dog)
    assert codes(dog) == (["WD136"] if operation else [])
    if operation:
        (alert,) = (a for a in dog.alerts if a.code == "WD136")
        assert alert.message.startswith(f"{operation} ")
        assert __name__.rpartition(".")[2] in alert.where
