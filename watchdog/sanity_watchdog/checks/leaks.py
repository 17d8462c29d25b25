"""The label in the input: seen there, or in a loss that falls too fast."""

import math

from ..alerts import Severity, number
from ..evidence.progress import LeakedTarget, Learning, Supervision
from .check import Findings, Skip, check

SOON = 21
"""Optimizer steps that count as few."""
TOO_GOOD = 0.02
"""Share of the labels' entropy. Well separated blobs get there within 5 steps of Adam at 1e-2: never an alarm."""
SCRATCH = 0.8
"""Share of chance above which a first loss counts as that of an untrained model."""
MOST_TELLING = 0.5
"""Share of the columns: where most tell the label, the data are made from it, as in a toy without noise."""
BITS = math.log(1e6)
"""Information, in nats beyond the number of columns tried, from which equality with the label is no chance."""


@check("WD145", "too-good-too-soon", Severity.WARNING, Supervision, implied_by=("WD110", "WD124", "WD132"))
def too_good_too_soon(seen: Supervision) -> Findings:
    """The label is in the input, or the loss fell to almost nothing within a few steps.

    **What it sees.** Two things. In the first batch, whether columns of the table that enters the model have one value
    for each class and so tell the label in every sample, or one equals the target of a regression; by chance that
    happens once in a million such tables. And, as an INFO, a classification loss that starts at chance, on
    balanced labels, and is below 2 % of their entropy within 21 optimizer steps.

    **Why it matters.** A leak: the validation loss will look the same, the real use will not.

    **How to fix.** Take the label, and everything that is computed from it, out of the features; look for duplicates
    between inputs and targets::

        x = table.to_numpy()                          # before: the label is one of the columns
        x = table.drop(columns="label").to_numpy()    # after

    **When to ignore.** Where the task is that easy. One batch trained on again and again (``overfit_batches``) is not
    judged, nor runs that continue another one or start below chance.

    **Limits.** The table of at most 262,144 values that the first linear layer or BatchNorm takes, or one that is
    attached to what embeddings made and leads to the scores; 64 classes. A leak in an image or a text shows in the
    second way only, if at all; a view of later tokens is another check's.

    **Sources.** Kaufman et al. 2012, Leakage in Data Mining; measured: a leak does not show in the first loss.
    """
    if isinstance(seen, LeakedTarget):
        n, counts = seen.samples, seen.counts
        spread = sum(c * math.log(n / c) for c in counts) if counts else math.inf
        few = seen.telling <= MOST_TELLING * seen.features
        if seen.column >= 0 and few and spread > seen.telling * math.log(seen.features) + BITS:
            more = f" and {seen.telling - 1} more" if seen.telling > 1 else ""
            what = "the label" if counts else "the target"
            yield too_good_too_soon.alert(
                seen,
                f"column {seen.column}{more} of {seen.path} tell{'' if more else 's'} {what} in all {n} samples",
                hint="take the label, and what is computed from it, out of the features",
                subjects=(seen.path,),
                evidence={"column": seen.column, "telling": seen.telling, "samples": n, "features": seen.features},
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
                severity=Severity.INFO,
                hint="look for the label, or what is computed from it, in the input",
                where=seen.where,
                evidence={"value": score.value, "entropy": score.entropy, "samples": score.samples},
            )
            return
