"""The label in the input: seen there, or in a loss that falls too fast."""

import math

from ..alerts import Severity, number
from ..evidence.progress import LeakedTarget, Learning, Supervision
from .check import Findings, Skip, check

SOON = 21
"""Optimizer steps that count as few."""
TOO_GOOD = 0.02
"""Share of the labels' entropy; separable blobs under Adam at 1e-2 keep 0.1 for that long."""
SCRATCH = 0.8
"""Share of chance above which a first loss counts as that of an untrained model."""
BITS = math.log(1e6)
"""Information, in nats beyond the number of columns tried, from which equality with the label is no chance."""


@check("WD145", "too-good-too-soon", Severity.WARNING, Supervision, implied_by=("WD110", "WD124", "WD132"))
def too_good_too_soon(seen: Supervision) -> Findings:
    """The label is in the input, or the loss fell to almost nothing within a few steps.

    **What it sees.** Two things. In the first batch, whether a column of the table that enters the model equals the
    label in every sample, or whether columns indicate each of its classes; by chance that happens once in a million
    such tables. And a classification loss that starts at chance, on balanced labels, and is below 2 % of their entropy
    within 21 optimizer steps.

    **Why it matters.** A leak: the validation loss will look the same, the real use will not.

    **How to fix.** Take the label, and everything that is computed from it, out of the features; look for duplicates
    between inputs and targets.

    **When to ignore.** Where the task is that easy. One batch trained on again and again (``overfit_batches``) is not
    judged, nor runs that continue another one or start below chance.

    **Limits.** The first linear layer's table of at most a million values, 64 classes. A leak in an image or a text
    shows in the second way only, if at all; one-sided views of the future are another check's.

    **Sources.** Kaufman et al. 2012, Leakage in Data Mining; measured: a leak does not show in the first loss.
    """
    if isinstance(seen, LeakedTarget):
        n, counts = seen.samples, seen.counts
        spread = sum(c * math.log(n / c) for c in counts if c)
        if seen.column >= 0 and spread > math.log(max(seen.features, 1)) + BITS:
            what = "and its neighbours indicate the class" if seen.one_hot else "equals the label"
            yield too_good_too_soon.alert(
                seen,
                f"column {seen.column} of {seen.path} {what} in all {n} samples",
                hint="take the label, and what is computed from it, out of the features",
                subjects=(seen.path,),
                evidence={"column": seen.column, "samples": n, "features": seen.features},
            )
    elif isinstance(seen, Learning):
        yield from _fell(seen)


def _fell(seen: Learning) -> Findings:
    if not seen.classes or seen.resumed or seen.per_epoch <= SOON:
        yield Skip("no classification loss, a run that continues, or an epoch of a few batches")
        return
    first = seen.scores[0]
    for score in seen.scores[1:]:
        usual = first.value >= SCRATCH * first.chance and score.entropy > score.chance / 2
        if score.attempt <= SOON and usual and score.value < TOO_GOOD * score.entropy:
            yield too_good_too_soon.alert(
                seen,
                f"loss {number(score.value)} after {score.attempt} steps, labels have {number(score.entropy)} nats",
                hint="look for the label, or what is computed from it, in the input",
                where=seen.where,
                evidence={"value": score.value, "entropy": score.entropy, "samples": score.samples},
            )
            return
