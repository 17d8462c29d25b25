"""Single losses far above all others."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from ..alerts import Severity, number
from ..evidence.progress import Losses
from .check import Findings, Skip, check

SPIKE_MEDIAN, SPIKE_HIGHEST = 10.0, 3.0
"""A spike exceeds the median of the losses before it, and the highest loss so far, by these factors."""
BEFORE_SPIKE = 20
"""Losses that must have been seen before one can be called a spike."""
BEFORE_HUGE, HUGE = 8, 100.0
"""As few are enough for one that exceeds the highest so far by this factor."""
WIDE = 4.0
"""Mean changes from loss to loss, as logarithms, by which a spike must exceed the median: those of single samples that
a trained model is sure of differ by orders of magnitude."""
AFTER_SPIKE = 8
"""Losses after a jump that tell a spike from a new level."""
LEVEL = 1.5
"""Losses at a new level exceed its first one by this factor at most; a step that broke the weights ends elsewhere."""


@check("WD143", "loss-spike", Severity.WARNING, Losses, implied_by=("WD142", "WD144", "WD216", "WD317"))
def loss_spike(seen: Losses) -> Findings:
    """One batch's loss jumped far above everything before it.

    **What it sees.** The returned loss of every batch. A spike is ten times the median of the 20 or more positive
    losses before it, and three times the highest loss of the run so far (a hundred times, where 8 to 19 came before
    it), and stands out from the usual changes from batch to batch. It is an INFO where the next 8 losses stay about as
    high: a term that is switched on at some step gives the loss a new level.

    **Why it matters.** A broken sample, or a step that was too large; Adam's second moments remember it for long.

    **How to fix.** Look at that batch; clip gradients (``Trainer(gradient_clip_val=1.0)``); lower the learning rate or
    warm it up::

        Trainer(callbacks=[SanityWatchdog()])                                              # before
        Trainer(gradient_clip_val=1.0, callbacks=[SanityWatchdog(save_batches=True)])      # after: keeps the batch too

    **When to ignore.** Losses with heavy tails by design.

    **Limits.** Runs whose loss is ever zero or negative are not judged, nor steps that return nothing.

    **Sources.** Google's tuning playbook on instabilities; factors chosen far beyond the ratio of 2 that healthy small
    batches reach.
    """
    values = seen.values
    if any(v <= 0 for v in values):
        yield Skip("losses that are zero or negative")
        return
    if seen.before + len(values) <= BEFORE_HUGE:
        yield Skip(f"fewer than {BEFORE_HUGE} losses")
        return
    shown = max(1, len(values) - seen.fresh - AFTER_SPIKE)  # those whose losses afterwards were still to come
    known = len(values) if seen.over else len(values) - AFTER_SPIKE
    highest = max(v for v in (0.0, seen.highest, *values[:shown]) if not math.isnan(v))
    for i, value in enumerate(values[shown:known], shown):
        before, highest = highest, max(highest, value)  # a NaN is never the larger one
        count = seen.before + i
        factor = math.inf if count < BEFORE_HUGE else HUGE if count < BEFORE_SPIKE else SPIKE_HIGHEST
        if not factor * before < value < math.inf:
            continue
        window = values[max(i - 64, 0) : i]
        usual = median(window)
        if value > SPIKE_MEDIAN * usual and math.log(value / usual) > WIDE * _change(window):
            batch = seen.last - (len(values) - 1 - i)
            after = values[i + 1 : i + 1 + AFTER_SPIKE]
            clip = "clip gradients to less" if seen.clipped else "clip gradients (gradient_clip_val=1.0)"
            stays = bool(after) and all(math.sqrt(usual * value) < v < LEVEL * value for v in after)
            yield loss_spike.alert(
                seen,
                f"loss {number(value)} in batch {batch}, the median before it is {number(usual)}"
                + (", and it stays there" if stays else ""),
                severity=Severity.INFO if stays else None,
                hint="nothing to do if a term of the loss was switched on there; else look at that batch"
                if stays
                else f"look at that batch; {clip} or lower the learning rate",
                evidence={"batch": batch, "loss": value, "median": usual, "highest_before": before},
            )
            return


def _change(losses: Sequence[float]) -> float:
    """Mean factor between a loss and the next, as a logarithm."""
    changes = [abs(math.log(b) - math.log(a)) for a, b in pairwise(losses) if math.isfinite(a) and math.isfinite(b)]
    return fmean(changes) if changes else 0.0
