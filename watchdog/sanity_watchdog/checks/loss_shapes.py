"""Shapes that meet in a loss."""

import math

from ..alerts import Severity
from ..evidence.losses import Difference, batch_meets_batch, broadcast
from .check import Findings, check


@check("WD104", "broadcast-loss", Severity.ERROR, Difference)
def broadcast_loss(seen: Difference) -> Findings:
    """Every prediction is compared with every target, because a column met a row.

    **What it sees.** The shapes of prediction and target of ``mse_loss``, ``l1_loss``, ``smooth_l1_loss`` and
    ``huber_loss``, and of a subtraction in the user's own code whose result is then averaged or summed: shapes of
    different rank, both led by the batch size, that broadcast to something larger than either.

    **Why it matters.** (N, 1) against (N,) is an N x N matrix. The best the network can do is the mean of all
    targets; the loss falls to their variance and stays there.

    **How to fix.** Give both the same shape::

        F.mse_loss(net(x).squeeze(1), y)         # (N,) and (N,)

    **When to ignore.** Where all pairs are meant. An axis that is put in on purpose (``unsqueeze``, ``[:, None]``)
    before a subtraction, tensors of the same rank, and an ensemble broadcast against one target are not accused.

    **Limits.** A subtraction is only seen in the first steps and where nothing is compiled.

    **Sources.** PyTorch warns of it once, in a line that most logs bury.
    """
    a, b = seen.spread.shape, seen.spread.target_shape
    if batch_meets_batch(a, b):
        both = broadcast(a, b) or ()
        yield broadcast_loss.alert(
            seen,
            f"{seen.function} of {a} and {b} is taken over {both}: {math.prod(both):,} pairs",
            hint=f"give both the same shape, such as squeeze({_column(a, b)}) for {a if len(a) > len(b) else b}",
            subjects=(seen.function,),
            where=seen.spread.where,
            evidence={"shape": str(a), "target_shape": str(b), "broadcast": str(both)},
        )


def _column(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The axis of length one that the longer shape has too many."""
    longer = a if len(a) > len(b) else b
    return max((i for i, n in enumerate(longer) if n == 1), default=-1)
