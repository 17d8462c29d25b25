"""Attention between samples that is meant, and what looks like it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.observe.calls import Trace
from sanity_watchdog.observe.intercept import FollowingMode, Interception
from sanity_watchdog.observe.lineage import Lineage

X = torch.randn(12, 8)
FIRST, LATER = nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2)


def found(step: Callable[[Tensor], Tensor], x: Tensor = X) -> str:
    trace = Trace(followed=True)
    inside = Interception(trace, lambda call: None, 0)
    with FollowingMode(inside, Lineage(trace, (x,), True)):
        step(x)
    inside.tell()
    assert trace.attending is not None
    return trace.attending.together.reason


def heads(x: Tensor) -> Tensor:
    q = x[None].view(1, 12, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q)


def in_place_of_heads(x: Tensor) -> Tensor:
    q = x[:, None].view(12, 1, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q)


def itself(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, x, x)[0]


@pytest.mark.parametrize(
    "step", [lambda x: itself(FIRST, x[None]), lambda x: itself(FIRST, x.unsqueeze(0)), heads, lambda x: x @ x.T]
)
def test_attention_between_samples_on_purpose(step: Callable[[Tensor], Tensor]) -> None:
    assert found(step)


@pytest.mark.parametrize(
    "step", [lambda x: itself(LATER, x[:, None]), lambda x: itself(LATER, x[None]), in_place_of_heads, torch.square]
)
def test_samples_taken_for_time_and_samples_apart(step: Callable[[Tensor], Tensor]) -> None:
    assert not found(step)


def test_as_many_positions_as_samples() -> None:
    assert not found(lambda x: x @ x.transpose(1, 2), torch.randn(12, 12, 8))
