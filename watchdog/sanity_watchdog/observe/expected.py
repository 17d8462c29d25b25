"""What a loss call gives for predictors that need no network: equal probabilities, the best constant, perfection.

Notation: w class weights, e smoothing, k classes, n_c valid targets of class c. With the mass
m_c = (1 - e) w_c n_c + (e / k) w_c n and M = Σ m_c, equal probabilities cost M ln k and the best constant
M ln M - Σ m_c ln m_c, both over what the reduction divides by. Everything stays on the device.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Reference(NamedTuple):
    """Values of a loss call, reduced as the call reduces (``none`` counts as a mean over all targets).

    Attributes:
        uniform: for equal probabilities. prior: for the best constant prediction. perfect: for the best of all.
        targets: targets that count.
    """

    uniform: Tensor
    prior: Tensor
    perfect: Tensor
    targets: Tensor


def xlogx(x: Tensor) -> Tensor:
    """x ln x, 0 at 0."""
    return torch.xlogy(x, x)


def class_counts(labels: Tensor, k: int) -> Tensor:
    """``(k,)`` counts of the flat int64 ``labels``; others than 0 … k-1 are left out.

    By sorting: ``bincount`` reads its size from the device and is refused in deterministic mode.
    """
    edges = torch.searchsorted(labels.sort().values, torch.arange(k + 1, device=labels.device, dtype=labels.dtype))
    return (edges[1:] - edges[:-1]).float()


def cross_entropy(
    target: Tensor,
    k: int,
    axis: int,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Reference:
    """References of ``cross_entropy`` and ``nll_loss``; ``axis`` is the class axis of soft targets."""
    w = torch.ones(k, device=target.device) if weight is None else weight.detach().float()
    over: Tensor | float
    if target.is_floating_point():
        rows = target.detach().movedim(axis, -1).reshape(-1, k).float()
        q = ((1 - smoothing) * rows + smoothing / k) * w
        mass = q.sum(0)
        n = over = torch.full((), float(len(q)), device=q.device)
        perfect = (xlogx(q.sum(1)) - xlogx(q).sum(1)).sum()
    else:
        y = target.detach().reshape(-1)
        counts = class_counts(torch.where(y == ignore_index, k, y), k)
        n = counts.sum()
        rest = smoothing / k * w
        own = (1 - smoothing) * w + rest
        mass = (1 - smoothing) * w * counts + rest * n
        row = rest.sum() - rest + own
        others = xlogx(rest).sum() - xlogx(rest)
        perfect = (counts * (xlogx(row) - others - xlogx(own))).sum()
        over = (w * counts).sum()
    if reduction != "mean":
        over = 1.0 if reduction == "sum" else n
    total = mass.sum()
    return Reference(math.log(k) * total / over, (xlogx(total) - xlogx(mass).sum()) / over, perfect / over, n)


def binary_cross_entropy(
    target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: str = "mean"
) -> Reference:
    """References of binary cross entropy, with or without logits; the best constant is one per output column."""
    y = target.detach().float()
    w = torch.ones((), device=y.device) if weight is None else weight.detach().float()
    yes = (y * w * (1.0 if pos_weight is None else pos_weight.detach().float())).expand_as(y)
    no = ((1 - y) * w).expand_as(y)
    axes = tuple(range(y.ndim - 1)) if y.ndim > 1 else tuple(range(y.ndim))
    a, b = yes.sum(axes), no.sum(axes)
    over = 1.0 if reduction == "sum" else float(max(y.numel(), 1))
    return Reference(
        math.log(2) * (a + b).sum() / over,
        (xlogx(a + b) - xlogx(a) - xlogx(b)).sum() / over,
        (xlogx(yes + no) - xlogx(yes) - xlogx(no)).sum() / over,
        torch.full((), float(y.numel()), device=y.device),
    )


def binary_terms(z: Tensor, y: Tensor, weight: Tensor | None, pos_weight: Tensor | None) -> Tensor:
    """Sizes of the two terms that binary cross entropy adds for scores ``z`` and targets ``y``: (1 - y) z, and minus
    the logarithm of the sigmoid, which the weight of positives multiplies."""
    own = 1.0 if pos_weight is None else 1 + (pos_weight.detach().float() - 1) * y
    terms = ((1 - y) * z).abs() + own * torch.nn.functional.softplus(-z)
    return (terms if weight is None else terms * weight.detach().float()).abs()


def kl_div(target: Tensor, reduction: str = "mean", log_target: bool = False) -> Reference:
    """References of ``kl_div`` whose last axis is the distribution; the best constant is one for all rows."""
    t = target.detach().float()
    t = t.exp() if log_target else t
    k = t.shape[-1]
    rows = t.reshape(-1, k)
    over = {"sum": 1.0, "batchmean": float(t.shape[0])}.get(reduction, float(t.numel()))
    own, mass = xlogx(rows).sum(), rows.sum(0)
    return Reference(
        (own + math.log(k) * mass.sum()) / over,
        (own - xlogx(mass).sum() + xlogx(mass.sum())) / over,
        xlogx(rows.sum(1)).sum() / over,
        torch.full((), float(len(rows)), device=t.device),
    )
