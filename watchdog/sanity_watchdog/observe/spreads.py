"""Differences of predictions and targets that are taken over all pairs of samples."""

from collections.abc import Sequence

from torch import Tensor

from ..evidence.broadcasts import Spread, batch_meets_batch
from .facts import Fact
from .operations import SUBTRACTS
from .pairs import compared
from .site import user_line


def spread_of(name: str, inputs: Sequence[Tensor], facts: Sequence[Fact]) -> Spread | None:
    """The spread that an operation on ``inputs`` makes or carries on."""
    carried = next((f.spread for f in facts if f.spread is not None), None)
    if carried is not None or len(inputs) < 2:
        return carried
    (a, fa), (b, fb) = (inputs[0], facts[0]), (inputs[1], facts[1])
    target = fb if a.requires_grad else fa
    shapes = (tuple(a.shape), tuple(b.shape)) if a.requires_grad else (tuple(b.shape), tuple(a.shape))
    if name == "broadcast_tensors":  # a column of choices in ``Categorical.log_prob``, which gives them one more axis
        column = (*shapes[1][:1], 1)
        chosen = a.requires_grad != b.requires_grad and target.data and shapes[1] == (*column, 1)
        return Spread(user_line(), shapes[0][:1], column, "log_prob") if chosen and batch_meets_batch(*shapes) else None
    if name not in SUBTRACTS:
        return None
    pairs = compared([f.pairs for f in facts], inputs)
    if pairs is not None:
        return pairs.spread
    if fa.axis_added or fb.axis_added or not (a.requires_grad or b.requires_grad) or _of_one_memory(a, b):
        return None
    sure = a.requires_grad != b.requires_grad
    return Spread(user_line(), *shapes, sure=sure) if target.data and batch_meets_batch(*shapes) else None


def _of_one_memory(a: Tensor, b: Tensor) -> bool:
    """Are both views of the same values, whose pairs are meant?"""
    return a._base is b or b._base is a or (a._base is not None and a._base is b._base)
