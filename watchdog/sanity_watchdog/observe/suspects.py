"""Operations that often let positions or samples see each other by mistake, and those that keep positions apart.

They prove nothing: where a graph has shown that something is wrong, they are the first places to look at.
"""

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..evidence.dependence import Suspect
from .names import plain_name
from .nodes import nodes_from
from .operation import Operation
from .operations import RECURRENT
from .site import user_line

MOVED = "samples moved"
"""Kind of a reshape that exchanges the axis of the samples with another one."""
TIME_FIRST = "time first"
"""Kind of a layer over sequences that got the samples as time."""
RESHAPED = "reshaped"
"""Kind of a reshape that gives a sample its own axes in another order."""
MOST = 16
"""Suspects kept of a step."""
LAST = 7
"""Place of the last argument that all recurrent functions have."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A suspect, a parameter that tells its module, and the result's node; ``shapes`` before and after a reshape."""

    kind: str
    operation: str
    where: str
    weight: Tensor | None = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    node: Any = None

    def named(self, module: nn.Module) -> Suspect:
        """With the name of its module, if it has one."""
        names = (n for n, p in module.named_parameters() if p is self.weight) if self.weight is not None else iter(())
        return Suspect(self.kind, self.operation, plain_name(next(names, "")).rpartition(".")[0], self.where)

    def is_cleared(self, module: nn.Module) -> bool:
        """Does its module take the samples first, and turn them round itself?"""
        owner = (m for m in module.modules() if any(p is self.weight for p in m._parameters.values()))
        return self.kind == TIME_FIRST and bool(getattr(next(owner, None), "batch_first", False))


def behind(seen: list[Seen], place: Tensor) -> list[Seen]:
    """Those that look at what is made of ``place``; all, where none of them is seen to."""
    return [s for s in seen if place.grad_fn in nodes_from(s.node)] or seen


def suspects(op: Operation, samples: int) -> list[Seen]:
    """What is suspicious about an operation on a batch of so many samples."""
    return [replace(seen, node=op.out.grad_fn) for seen in _suspects(op, samples)]


def _suspects(op: Operation, samples: int) -> Iterator[Seen]:
    name, args, kwargs, first, out = op.name, op.args, op.kwargs, op.first, op.out
    if first is None:
        return
    if name in RECURRENT and len(args) > LAST:
        weight = _first_tensor(args[3 if _packed(args) else 2])
        if not is_one_way(args):
            yield Seen("both ways", name, user_line(), weight)
        if not _packed(args) and args[-1] is False:
            yield from _time_first(name, first, samples, weight)
    elif name == "conv1d" and len(args) > 1:
        padding = op.argument("padding", 4, 0)
        if args[1].shape[-1] > 1 and padding not in (0, (0,), [0], "valid"):
            yield Seen("both sides", name, user_line(), args[1])
    elif name == "pad" and first.ndim == 3 and len(args) > 1 and len(args[1]) > 1 and args[1][1] > 0:
        yield Seen("padded", name, user_line())
    elif name == "multi_head_attention_forward" and len(args) > 5 and first.shape == args[1].shape:
        if kwargs.get("attn_mask") is None and not kwargs.get("is_causal"):
            yield Seen("unmasked", "attention", user_line(), args[5])
        yield from _time_first("attention", first, samples, args[5])
    elif name == "scaled_dot_product_attention" and len(args) > 2 and first.shape == args[1].shape:
        mask = op.argument("attn_mask", 3)
        if mask is None and not (kwargs.get("is_causal") or (len(args) > 5 and args[5])):
            yield Seen("unmasked", "attention", user_line())
    elif name in ("reshape", "view") and min(first.ndim, out.ndim) > 1 and first.shape != out.shape:
        old, new = tuple(first.shape), tuple(out.shape)
        if new == (old[1], old[0], *old[2:]) and samples in old[:2]:
            yield Seen(MOVED, name, user_line())
        elif (_reordered(old, new) and not (first.requires_grad and _skewed(old, new))) or (
            old[0] == samples and (_torn(old, new) or _patched(old, new))
        ):
            yield Seen(RESHAPED, name, user_line(), shapes=(old, new))
    elif name == "softmax" and first.ndim > 1 and len(first) == samples:
        axis = op.argument("dim", 1)
        if axis in (0, -first.ndim):
            yield Seen("over the batch", name, user_line())


def _reordered(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Has each sample the same axes as before, in another order?"""
    return old[0] == new[0] and sorted(old) == sorted(new) and [n for n in old if n > 1] != [n for n in new if n > 1]


def _skewed(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Do two neighbours of lengths n and n + 1 change places? So relative positions of attention are laid out."""
    moved = [i for i, (n, m) in enumerate(zip(old, new, strict=True)) if n != m]
    return len(moved) == 2 and moved[1] == moved[0] + 1 and abs(old[moved[0]] - old[moved[1]]) == 1


def _torn(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Are two axes of a sample joined, or one split in two, across a third one that keeps its length?

    Not where that one may as well be a piece of the last axis, put last, or of the first one, put first: unless the
    other is cut into two equal ones, as the places of a square map are. Axes in front that stay as they are may be
    those of heads.
    """
    if old[0] != new[0]:
        return False
    before, after = _apart([n for n in old[1:] if n > 1], [n for n in new[1:] if n > 1])
    if sorted((len(before), len(after))) != [2, 3]:
        return False
    few, many = _bounds(min(before, after, key=len)), _bounds(max(before, after, key=len))
    kept = [n for n in before if before.count(n) == after.count(n) == 1]
    if len(kept) != 1 or few <= many:
        return False
    last, first = after[-1] == kept[0] and before[-1] % kept[0] == 0, after[0] == kept[0] and before[0] % kept[0] == 0
    return not (last or first) or len({n for n in after if n != kept[0]}) == 1 < len(after) - 1


def _apart(before: list[int], after: list[int]) -> tuple[list[int], list[int]]:
    """What is left behind the axes in front that both have."""
    same = sum(1 for _ in itertools.takewhile(operator.truth, map(operator.eq, before, after)))
    return before[same:], after[same:]


def _patched(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Are images (N, C, H, W) cut into rows of the size and number of their square patches, which run across channels?

    Rows of whole channels, or of pieces of one, may be meant.
    """
    if len(old) != 4 or len(new) != 3 or old[0] != new[0] or old[1] < 2 or new[2] % old[1]:
        return False
    channels, area = old[1], old[2] * old[3]
    side = math.isqrt(new[2] // channels)
    fits = side > 1 and side * side * channels == new[2] and not (old[2] % side or old[3] % side)
    return fits and area % new[2] != 0 and new[2] % area != 0


def _bounds(axes: list[int]) -> set[int]:
    """Where axes begin and end, counted in pieces from the left."""
    return set(itertools.accumulate(axes, operator.mul))


def is_one_way(args: tuple[Any, ...]) -> bool:
    """Has a call of a recurrent function one direction?"""
    flags = [a for a in args if isinstance(a, bool)]
    return bool(flags) and not (flags[-1] if _packed(args) else flags[-2])


def keeps_order(op: Operation) -> bool:
    """Does it keep positions from seeing later ones?"""
    name, args = op.name, op.args
    if name in ("scaled_dot_product_attention", "multi_head_attention_forward"):
        return bool(op.kwargs.get("is_causal")) or (len(args) > 5 and args[5] is True)
    return name in ("triu", "tril") or (name in RECURRENT and bool(args) and is_one_way(args))


def _packed(args: tuple[Any, ...]) -> bool:
    return isinstance(args[1], Tensor) and not args[1].is_floating_point()


def _first_tensor(values: Any) -> Tensor | None:
    return next((v for v in values if isinstance(v, Tensor)), None) if isinstance(values, (list, tuple)) else None


def _time_first(name: str, given: Tensor, samples: int, weight: Tensor | None) -> Iterator[Seen]:
    if given.ndim == 3 and len(given) == samples != given.shape[1]:
        yield Seen(TIME_FIRST, name, user_line(), weight)
