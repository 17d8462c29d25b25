"""Reshapes where a permutation is meant, and results that go nowhere."""

from ..alerts import Severity
from ..evidence.dependence import Reordered, UnusedResult
from .check import Findings, check

NO_METHODS = ("normalize",)
"""Functions that tensors do not have as methods."""


@check("WD135", "torn-axes", Severity.WARNING, Reordered, implied_by=("WD103", "WD131", "WD132"))
def torn_axes(seen: Reordered) -> Findings:
    """A view or reshape gives images or sequences their axes in another order, and tears their values apart.

    **What it sees.** In the first step: a ``view`` or ``reshape`` of the batch, or of what was made from it, whose
    result has the same samples and the same axes in another order, such as (N, H, W, C) to (N, C, H, W) or (N, T, C)
    to (N, C, T); or joins two axes across a third, such as (N, C, F, T) to (N, T, C·F), or splits one across another,
    such as (N, T, heads·d) to (N, heads, T, d) or (N, H·W, C) to (N, C, H, W); or cuts (N, C, H, W) into as many rows
    as there are square patches, each of a patch's size. Axes of length one do not count.

    **Why it matters.** ``view`` and ``reshape`` keep the order in memory and only cut it anew: the channels of the
    result are pieces of rows. Nothing crashes, the loss even falls, but neighbours are no neighbours any more.

    **How to fix.** ::

        images.view(-1, 3, 32, 32)        # before: from (N, 32, 32, 3)
        images.permute(0, 3, 1, 2)        # after
        states.reshape(n, width, steps)   # before: from (n, steps, width)
        states.transpose(1, 2)            # after
        keys.view(n, heads, steps, -1)                     # before: from (n, steps, width)
        keys.view(n, steps, heads, -1).transpose(1, 2)     # after

    **When to ignore.** Where values lie in memory in another order than their shape says, which the reshape mends.

    **Limits.** Axes of equal length cannot be told apart, nor an axis from a piece of another, of as many values.
    Neighbours of lengths n and n + 1 that change places in what was made from the batch are left alone: that moves each
    row by one more, as relative positions of attention want it. What datasets and transforms do is not seen. The first
    step only; not where the step is compiled.

    **Sources.** Karpathy, Most common neural net mistakes (2018): view() is not permute().
    """
    if seen.operation:
        same = sorted(seen.before) == sorted(seen.after)
        what = "the same axes in another order" if same else "cut across an axis"
        yield torn_axes.alert(
            seen,
            f"{seen.operation} makes {seen.before} to {seen.after}: {what}, values torn apart",
            hint="use permute or transpose to exchange axes; view and reshape keep the order in memory",
            where=seen.where,
            evidence={"before": str(seen.before), "after": str(seen.after)},
        )


@check("WD136", "unused-result", Severity.WARNING, UnusedResult)
def unused_result(seen: UnusedResult) -> Findings:
    """A call returns a new tensor that nobody takes, and the old one stays as it was.

    **What it sees.** The first step: operations called in a statement of their own, whose result the very next
    instruction drops, such as ``scores.masked_fill(mask, -1e9)``. Of those that people take for in-place ones: the
    ones that have a twin with an underscore, views, conversions, ``softmax`` and ``normalize``.

    **Why it matters.** The line has no effect. Masked scores are not masked, clipped values not clipped, and a state
    that was to be detached keeps its history; nothing says so.

    **How to fix.** Take the result, or use the in-place twin::

        scores.masked_fill(mask, -1e9)             # before
        scores = scores.masked_fill(mask, -1e9)    # after
        ratio.clamp(0.8, 1.2)                      # before
        ratio = ratio.clamp(0.8, 1.2)              # after

    **When to ignore.** Where the call is made for its time alone, as in a measurement.

    **Limits.** Results that are given a name and never used are not seen, nor those of modules and of functions of
    your own. Within ``try`` a call may be made for what it raises. The first step only; not where the step is compiled.

    **Sources.** PyTorch documentation: in-place operations end with an underscore.
    """
    if seen.operation:
        twin = f", or use {seen.operation}_" if seen.twin else ""
        called = f"F.{seen.operation}" if seen.operation in NO_METHODS else f"x.{seen.operation}"
        yield unused_result.alert(
            seen,
            f"{seen.operation} returns a new tensor, which nobody takes: the line has no effect",
            hint=f"take the result: x = {called}(...){twin}",
            where=seen.where,
            evidence={"operation": seen.operation},
        )
