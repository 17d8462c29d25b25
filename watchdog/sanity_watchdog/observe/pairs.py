"""Pairs of every sample with every other one that nobody asked for: a column that met a row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ..evidence.broadcasts import Spread, batch_meets_batch
from .operation import Operation
from .operations import EXTREMES, KEEPS_VALUES, REDUCES, SUBTRACTS
from .site import user_line

KINDS = {
    "mul": "multiplication",
    "div": "division",
    "add": "addition",
    "sub": "subtraction",
    "rsub": "subtraction",
}


@dataclass(frozen=True, slots=True)
class Pairs:
    """A tensor with a value for each pair of samples.

    Attributes:
        spread: the shapes that met, the line, and the operation that made it.
        product: is it a sum of products of a value of one sample and one of the other? To average it is to multiply
            two averages, which nobody writes as a matrix on purpose; a plain sum of two has the same average as it
            would have without pairs.
    """

    spread: Spread
    product: bool


def pairs_of(op: Operation, known: Sequence[Pairs | None], added: Sequence[bool]) -> Pairs | None:
    """Pairs in an operation's result; ``added``: which inputs got an axis of length one on purpose."""
    inputs = op.inputs
    carried = next((p for p in known if p is not None), None)
    if carried is not None:
        return _carried(carried, op, known)
    kind = KINDS.get(op.name)
    if kind is None or len(inputs) != 2 or any(isinstance(t, nn.Parameter) for t in inputs):
        return None
    shapes = tuple(inputs[0].shape), tuple(inputs[1].shape)
    product = kind in ("multiplication", "division")
    if not batch_meets_batch(*shapes) or (any(added) and not product):
        return None
    return Pairs(Spread(user_line(), *shapes, kind), product)


def averaged(pairs: Pairs | None, op: Operation) -> bool:
    """Is the result the mean or the sum, with a gradient, of products over all pairs?"""
    whole = op.name in ("mean", "sum") and op.out.requires_grad and not op.out.ndim
    return pairs is not None and pairs.product and whole


def compared(known: Sequence[Pairs | None], inputs: Sequence[Tensor]) -> Pairs | None:
    """The pairs on one side of a difference whose other side holds one value for each sample, in as many axes."""
    if len(inputs) < 2 or (known[0] is None) == (known[1] is None):
        return None
    which = 0 if known[0] is not None else 1
    other = inputs[1 - which]
    single = other.ndim > 0 and other.shape[0] > 1 and other.numel() == max(other.shape)
    return known[which] if single and inputs[which].numel() > other.numel() else None


def _carried(pairs: Pairs, op: Operation, known: Sequence[Pairs | None]) -> Pairs | None:
    """The same pairs after another operation; None where they may be meant, as after anything that is not linear."""
    name, inputs = op.name, op.inputs
    rest = [t for t, p in zip(inputs, known, strict=True) if p is None]
    if name in KEEPS_VALUES or (name in REDUCES and name != "norm") or (name in EXTREMES and not rest):
        return pairs
    if any(t.numel() >= op.out.numel() > 1 for t in rest):
        return None
    if name == "add" or name in SUBTRACTS:
        return pairs
    if name == "mul" or (name == "div" and known[0] is not None):
        if len(rest) != len(inputs) - 1:
            return None
        return replace(pairs, product=True) if any(t.numel() > 1 for t in rest) else pairs
    return None
