"""Shapes that meet in a loss."""

import math

from ..alerts import Severity
from ..evidence.broadcasts import Difference, batch_meets_batch, broadcast
from .check import Findings, check


@check("WD104", "broadcast-loss", Severity.ERROR, Difference)
def broadcast_loss(seen: Difference) -> Findings:
    """Every sample meets every other one in the loss, because a column met a row.

    **What it sees.** Shapes of different rank, both led by the batch size, that broadcast to something larger than
    either: prediction and target of ``mse_loss``, ``l1_loss``, ``smooth_l1_loss`` and ``huber_loss``; a subtraction in
    the user's own code whose result is then averaged or summed; a product or quotient that is, with nothing but linear
    operations in between, such as ``(log_prob * advantage).mean()`` or weights of samples; a target that a sum of a
    column and a row has made a matrix; choices of ``Categorical.log_prob`` that are a column. Where both sides of a
    subtraction are outputs it is a WARNING.

    **Why it matters.** (N, 1) against (N,) is an N x N matrix. The best the network can do is the mean of all
    targets; the loss falls to their variance and stays there. Of a product the average is that of the one times that of
    the other: weights and advantages no longer tell the samples apart.

    **How to fix.** Give both the same shape::

        F.mse_loss(net(x).squeeze(1), y)         # (N,) and (N,)
        (log_prob.squeeze(1) * advantage).mean()

    **When to ignore.** Where all pairs are meant. An axis that is put in on purpose (``unsqueeze``, ``[:, None]``)
    before a subtraction, views of one tensor, tensors of the same rank, an ensemble broadcast against one target, and
    outer products that something is done with before they are averaged are not accused.

    **Limits.** Arithmetic is only seen in the first step and where nothing is compiled.

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
            severity=Severity.ERROR if seen.spread.sure else Severity.WARNING,
            evidence={"shape": str(a), "target_shape": str(b), "broadcast": str(both)},
        )


def _column(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The axis of length one that the longer shape has too many."""
    longer = a if len(a) > len(b) else b
    return max((i for i, n in enumerate(longer) if n == 1), default=-1)
