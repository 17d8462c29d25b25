"""A bounded part of the scores and targets of a loss, as views wherever that is possible."""

import math

from torch import Tensor

LIMIT = 1 << 20
"""Scores looked at per call: a 1024 x 50257 batch took 16 ms beside the loss's 541."""

Numbers = dict[str, Tensor]


def class_axis(scores: Tensor) -> int:
    """Axis of the classes in the scores of ``cross_entropy`` and ``nll_loss``."""
    return 1 if scores.ndim > 1 else 0


def few_rows(scores: Tensor, axis: int) -> tuple[Tensor, tuple[slice, ...]]:
    """A view ``(…, k)`` of at most about ``LIMIT`` scores, and the slices that take their targets alike.

    Positions inside a sample are thinned first, samples last.
    """
    moved = scores.movedim(axis, -1)
    cut = [slice(None)] * (moved.ndim - 1)
    for i in range(moved.ndim - 2, -1, -1):
        step = math.ceil(moved[tuple(cut)].numel() / LIMIT)
        if step > 1:
            cut[i] = slice(None, None, min(step, moved.shape[i]))
    return moved[tuple(cut)], tuple(cut)


def jointly(scores: Tensor) -> list[Tensor]:
    """The same scores with their last axes as one: two of them, more, all; of few samples where there are very many."""
    few = scores[: max(1, LIMIT * len(scores) // max(scores.numel(), 1))] if scores.ndim > 1 else scores
    first = 0 if len(few) == len(scores) else 1
    return [few.flatten(axis) for axis in range(scores.ndim - 2, first - 1, -1)]


def thinned(values: Tensor) -> Tensor:
    """A flat, strided part of ``values`` of at most about ``LIMIT`` elements."""
    flat = values.detach().reshape(-1) if values.is_contiguous() else values.detach().flatten()
    return flat[:: max(1, flat.numel() // LIMIT)]


def distinct(values: Tensor) -> Tensor:
    """Number of different values, 0-d, on their device."""
    ordered = values.reshape(-1).sort().values
    return 1 + (ordered[1:] != ordered[:-1]).sum()


def ends(values: Tensor, prefix: str = "") -> Numbers:
    """Extremes of a bounded part."""
    low, high = thinned(values).aminmax()
    return {prefix + "low": low, prefix + "high": high}


def edge_share(values: Tensor, found: Numbers) -> Tensor:
    """Share of a bounded part that equals one of its extremes."""
    part = thinned(values)
    return ((part == found["low"]) | (part == found["high"])).float().mean()


def zero_share(values: Tensor) -> Tensor:
    """Share of exact zeros in a bounded part."""
    return (thinned(values) == 0).float().mean()
