"""Reshapes where a permutation is meant."""

from ..alerts import Severity
from ..evidence.dependence import Reordered
from .check import Findings, check


@check("WD135", "torn-axes", Severity.WARNING, Reordered, implied_by=("WD103", "WD131", "WD132"))
def torn_axes(seen: Reordered) -> Findings:
    """A view or reshape gives images or sequences their axes in another order, and tears their values apart.

    **What it sees.** In the first step: a ``view`` or ``reshape`` of the batch, or of what was made from it, whose
    result has the same samples and the same axes in another order, such as (N, H, W, C) to (N, C, H, W) or (N, T, C)
    to (N, C, T). Axes of length one do not count.

    **Why it matters.** ``view`` and ``reshape`` keep the order in memory and only cut it anew: the channels of the
    result are pieces of rows. Nothing crashes, the loss even falls, but neighbours are no neighbours any more.

    **How to fix.** ::

        images.view(-1, 3, 32, 32)        # before: from (N, 32, 32, 3)
        images.permute(0, 3, 1, 2)        # after
        states.reshape(n, width, steps)   # before: from (n, steps, width)
        states.transpose(1, 2)            # after

    **When to ignore.** Where values lie in memory in another order than their shape says, which the reshape mends.

    **Limits.** Axes of equal length cannot be told apart, and what datasets and transforms do is not seen. The first
    step only; not where the step is compiled.

    **Sources.** Karpathy, Most common neural net mistakes (2018): view() is not permute().
    """
    if seen.operation:
        yield torn_axes.alert(
            seen,
            f"{seen.operation} makes {seen.before} to {seen.after}: the same axes in another order, values torn apart",
            hint="use permute or transpose to exchange axes; view and reshape keep the order in memory",
            where=seen.where,
            evidence={"before": str(seen.before), "after": str(seen.after)},
        )
