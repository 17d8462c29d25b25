"""What forbids a second look at a graph, and what shows that samples are meant to see each other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sanity_watchdog.observe.batches import elements
from sanity_watchdog.observe.calls import LossCall, Trace
from sanity_watchdog.observe.nodes import nodes
from sanity_watchdog.observe.obstacles import mixing_on_purpose, obstacle

LAYER = nn.Linear(3, 2)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return 2 * grad


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (LAYER, ""),
        (lambda x: Doubled.apply(LAYER(x)), "the custom autograd function Doubled"),
        (lambda x: checkpoint(LAYER, x, use_reentrant=True), "gradient checkpointing"),
        (lambda x: torch.compile(LAYER, backend="aot_eager")(x), "a compiled part"),
    ],
    ids=["plain", "function", "reentrant checkpoint", "compiled"],
)
def test_obstacles_in_the_graph(forward: Callable[[Tensor], Tensor], why: str) -> None:
    loss = forward(torch.randn(4, 3, requires_grad=True)).sum()
    found = obstacle(Trace(), nodes(loss), loss)
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_what_the_step_has_shown_comes_first() -> None:
    loss = LAYER(torch.randn(4, 3)).sum()
    assert obstacle(Trace(obstacles=["a hook"]), nodes(loss), loss) == "a hook"


def why_mixed(scores: Tensor, target: Tensor | None = None, batch: Any = (), samples: int = 6) -> str:
    target = torch.zeros(len(scores), dtype=torch.long) if target is None else target
    call = LossCall("cross_entropy", "", {"input": scores, "target": target})
    return mixing_on_purpose(call, list(nodes(scores)), samples, elements(batch), nn.Identity(), Trace())


@pytest.mark.parametrize(
    ("mix", "why"),
    [
        (lambda h: h, ""),
        (lambda h: h - h.mean(1, keepdim=True), ""),
        (lambda h: h / h.var(1, keepdim=True), ""),
        (lambda h: h / h.var(0, keepdim=True), "statistics over the batch"),
        (lambda h: h / h.std(), "statistics over the batch"),
        (lambda h: nn.BatchNorm1d(2)(h), "BatchNorm"),
        (lambda h: nn.BatchNorm1d(2).eval()(h), ""),
        (lambda h: h.index_add(0, torch.tensor([1, 0]), h[:2]), "IndexAdd passes messages"),
        (lambda h: h @ h.T, "as many scores as samples"),
    ],
)
def test_samples_that_are_meant_to_see_each_other(mix: Callable[[Tensor], Tensor], why: str) -> None:
    found = why_mixed(mix(LAYER(torch.randn(6, 3))))
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_data_that_say_samples_belong_together() -> None:
    scores = LAYER(torch.randn(6, 3))
    assert why_mixed(scores, torch.arange(6)) == "targets that count the rows: a contrastive loss"
    assert why_mixed(scores, batch=(torch.eye(6), torch.randn(6, 3))) == "a graph"
    assert why_mixed(scores, batch=torch.eye(6)) == ""  # the features themselves
    assert why_mixed(scores, batch=torch.eye(6).to_sparse()) == "a graph"
    assert why_mixed(scores, batch=torch.randint(0, 6, (2, 9))) == "a graph"
    assert why_mixed(scores, batch=torch.randn(6, 9)) == ""
