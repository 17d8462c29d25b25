"""References against torch's own losses and a numerical minimum, in every combination of their settings."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe import expected


def close(a: Tensor, b: Tensor) -> bool:
    return abs(float(a) - float(b)) <= 2e-5 * max(1.0, abs(float(b)))


def best(loss: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """Smallest value of a convex loss of ``size`` numbers."""
    x = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], 1.0, 200, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    optimizer.step(closure)
    return loss(x).detach()


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_cross_entropy(k: int, smoothing: float, reduction: str, soft: bool) -> None:
    torch.manual_seed(k)
    for shape, weighted, ignored in itertools.product(((24,), (4, 6), (2, 3, 4)), (False, True), (False, True)):
        weight = torch.rand(k, dtype=torch.float64) + 0.2 if weighted else None
        full = (shape[0], k, *shape[1:])
        if soft:
            target = torch.rand(full, dtype=torch.float64).softmax(1)
            tau = target
        else:
            target = torch.randint(0, k, shape)
            tau = F.one_hot(target, k).double().movedim(-1, 1)
            if ignored:
                target = torch.where(torch.rand(shape) < 0.3, -100, target)
        tau = (1 - smoothing) * tau + smoothing / k
        if weight is not None:
            tau = tau * weight.view(1, k, *[1] * (len(shape) - 1))

        def loss(z: Tensor, target: Tensor = target, weight: Tensor | None = weight) -> Tensor:
            value = F.cross_entropy(z, target, weight, reduction=reduction, label_smoothing=smoothing)
            count = value.numel() if soft else (target != -100).sum()
            return value.sum() / count if reduction == "none" else value

        found = expected.cross_entropy(target, k, 1, weight, -100, smoothing, reduction)
        assert close(found.uniform, loss(torch.zeros(full, dtype=torch.float64)))
        assert close(found.perfect, loss((tau / tau.sum(1, keepdim=True)).clamp_min(1e-300).log()))
        assert int(found.targets) == (target[:, 0].numel() if soft else int((target != -100).sum()))
        constant = [k] + [1] * (len(shape) - 1)
        assert close(found.prior, best(lambda b, f=full, c=constant, go=loss: go(b.view(1, *c).expand(f)), k))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("columns", [1, 4])
def test_binary_cross_entropy(columns: int, reduction: str) -> None:
    torch.manual_seed(columns)
    for weighted, positive, soft in itertools.product((False, True), repeat=3):
        y = torch.rand(30, columns, dtype=torch.float64)
        y = y if soft else (y < 0.3).double()
        weight = torch.rand(30, columns, dtype=torch.float64) if weighted else None
        pos = torch.rand(columns, dtype=torch.float64) * 3 + 0.2 if positive else None

        def loss(z: Tensor, y: Tensor = y, w: Tensor | None = weight, p: Tensor | None = pos) -> Tensor:
            return F.binary_cross_entropy_with_logits(z, y, w, reduction=reduction, pos_weight=p).mean()

        found = expected.binary_cross_entropy(y, weight, pos, reduction)
        q = y * (1.0 if pos is None else pos)
        assert close(found.uniform, loss(torch.zeros_like(y)))
        assert close(found.prior, best(lambda b, y=y, go=loss: go(b.expand_as(y)), columns))
        assert close(found.perfect, loss((q / (1 - y)).log().clamp(-40, 40)))
        assert int(found.targets) == y.numel()


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean", "none"])
@pytest.mark.parametrize("log_target", [False, True])
def test_kl_div(reduction: str, log_target: bool) -> None:
    torch.manual_seed(0)
    t = torch.rand(12, 5, dtype=torch.float64).softmax(1)
    target = t.log() if log_target else t

    def loss(z: Tensor) -> Tensor:
        return F.kl_div(z, target, reduction=reduction, log_target=log_target).mean()

    found = expected.kl_div(target, reduction, log_target)
    assert close(found.uniform, loss(torch.full((12, 5), -math.log(5), dtype=torch.float64)))
    assert close(found.prior, best(lambda b: loss(b.log_softmax(0).expand(12, 5)), 5))
    assert close(found.perfect, loss(t.log()))


def test_uniform_is_not_ln_k_with_weights_and_smoothing() -> None:
    torch.manual_seed(0)
    weight = torch.tensor([0.36, 1.25, 3.6, 8.3])
    y = torch.multinomial(torch.tensor([0.7, 0.2, 0.07, 0.03]), 512, True)
    found = expected.cross_entropy(y, 4, 1, weight, smoothing=0.1)
    assert close(found.uniform, F.cross_entropy(torch.zeros(512, 4), y, weight, label_smoothing=0.1))
    assert float(found.uniform) > math.log(4) + 0.1


def test_counts_leave_out_what_is_no_class() -> None:
    y = torch.tensor([0, 2, 2, -1, 5, 3])
    assert expected.class_counts(y, 4).tolist() == [1, 0, 2, 1]
