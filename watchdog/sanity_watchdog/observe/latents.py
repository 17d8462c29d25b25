"""Codes that are drawn for whole sequences, as of a variational network: they tell of later positions on purpose."""

from collections.abc import Iterable

import torch
from torch import Tensor

from .company import COUNTS
from .entering import by_position
from .sequences import Row

DRAWN = "a code that is drawn for the whole sequence, and nothing else, tells of later positions"


def explain(codes: Iterable[Tensor], row: Row, scores: Tensor, seed: Tensor, gradient: Tensor, samples: int) -> bool:
    """Does no more than rounding of what ``gradient`` shows of later positions remain beside the codes?

    Args:
        codes: drawn in the step around what data have made. Those of single positions explain nothing.
        row: of the scores. seed: their weights. gradient: with these, where the targets enter.
        samples: of the batch.
    """
    entry, whole = row.entry, [c for c in codes if c.ndim and c.numel() == samples * c.shape[-1]]
    if entry is None or not whole:
        return False
    felt = torch.autograd.grad(scores, whole, seed, retain_graph=True, allow_unused=True)
    through = [(code, g) for code, g in zip(whole, felt, strict=True) if g is not None]
    if not through:
        return False
    ends, seeds = zip(*through, strict=True)
    by_code = torch.autograd.grad(ends, entry.place.operation.out, seeds, retain_graph=True, allow_unused=True)[0]
    if by_code is None:
        return False
    before, beside = (by_position(entry, g, row.sample) for g in (gradient, gradient - by_code))
    if before is None or beside is None:
        return False
    return float(beside[row.position + 1 :].amax()) <= COUNTS * float(before.amax())
