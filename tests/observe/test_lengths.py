"""Products of vectors by the axis along which they have length one."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.calls import Trace
from sanity_watchdog.observe.intercept import FollowingMode, Interception
from sanity_watchdog.observe.lineage import Lineage

PRODUCTS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "each": (lambda z: F.normalize(z, dim=1) @ F.normalize(z, dim=1).T, False),
    "each by default": (lambda z: F.normalize(z) @ F.normalize(z).T, False),
    "all": (lambda z: F.normalize(z, dim=0) @ F.normalize(z, dim=0).T, True),
    "all, by place": (lambda z: F.normalize(z, 2.0, 0).mm(F.normalize(z, 2.0, 0).t()), True),
    "all, linear": (lambda z: F.linear(F.normalize(z, dim=0), F.normalize(z, dim=0)), True),
    "all, then scaled": (lambda z: (F.normalize(z, dim=0) @ F.normalize(z, dim=0).T / 0.1).fill_diagonal_(-9.0), True),
    "by hand": (lambda z: (lambda u: u @ u.T)(z / z.norm(dim=0, keepdim=True)), True),
    "all, one scaled first": (
        lambda z: (lambda u: torch.ones((), requires_grad=True).exp() * u @ u.T)(F.normalize(z, dim=0)),
        True,
    ),
    "each, one scaled first": (lambda z: (lambda u: u * torch.ones(1) @ u.T / 0.1)(F.normalize(z, dim=1)), False),
    "by hand, each": (lambda z: (lambda u: u @ u.T)(z / z.norm(dim=1, keepdim=True).clamp_min(1e-6)), False),
    "columns": (lambda z: F.normalize(z, dim=0).T @ F.normalize(z, dim=0), False),
    "both axes": (lambda z: (lambda u: u @ u.T)(F.normalize(F.normalize(z, dim=0), dim=1)), False),
    "one of the two": (lambda z: F.normalize(z, dim=0) @ z.T, False),
    "three axes": (lambda z: (lambda u: u @ u.transpose(1, 2))(F.normalize(z.view(2, 4, 6))), True),
    "three axes, each": (lambda z: (lambda u: u @ u.mT)(F.normalize(z.view(2, 4, 6), dim=-1)), False),
    "through another layer": (lambda z: (F.normalize(z, dim=0) @ F.normalize(z, dim=0).T).relu() @ z, False),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    make, across = PRODUCTS[name]
    z, trace = torch.randn(8, 6, requires_grad=True), Trace(followed=True)
    inside = Interception(trace, lambda call: None, 0)
    with FollowingMode(inside, Lineage(trace, (), True)):
        out = make(z)
    inside.tell()
    assert trace.followers is not None
    assert bool(trace.followers.lengths.across(out)) is across
