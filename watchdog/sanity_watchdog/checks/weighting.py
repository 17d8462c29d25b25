"""Class weights that make an imbalance worse."""

import math
from collections.abc import Iterator
from statistics import fmean
from typing import NamedTuple

from ..alerts import Severity
from ..evidence.targets import ClassWeights
from .check import Findings, Skip, check

LABELS = 200
"""Labels that must have been counted."""
FEWEST = 8
"""Labels of a class, and others of a column, that its frequency is taken from."""
UNEQUAL = math.log(3)
"""Logarithm of the factor by which frequencies must differ."""
NEAR, ERRORS = 0.2, 2.0
"""Distance in logarithms up to which weights count as proportional, and standard errors of a frequency beside it."""


@check("WD113", "inverted-weights", Severity.WARNING, ClassWeights, implied_by=("WD105",))
def inverted_weights(seen: ClassWeights) -> Findings:
    """Classes are weighted by their frequency, where its inverse is meant.

    **What it sees.** The ``weight`` of a cross entropy (or a table from which its values get factors by their label, as
    in ``weight[y] * losses``) and the labels that came with it, or the ``pos_weight`` of a binary one and the share of
    ones. An alert needs 200 labels, frequencies that differ threefold, and weights that are
    proportional to them, class by class, within a fifth and two standard errors of the counts.

    **Why it matters.** Weights are there to make rare classes count. These make them count even less: the model learns
    to ignore them, with a loss and an accuracy that look fine.

    **How to fix.** Divide by the frequency; ``pos_weight`` is negatives over positives::

        nn.CrossEntropyLoss(weight=counts / counts.sum())                     # before
        nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts))     # after
        nn.BCEWithLogitsLoss(pos_weight=negatives / positives)

    **When to ignore.** Where frequent classes are meant to count more than they do by themselves.

    **Limits.** Hard labels, at the sampled steps; a table of factors as it is in the first one. Not where a
    ``WeightedRandomSampler`` draws, whose choice weights may undo. Weights that grow with the frequency by another law
    are not accused.

    **Sources.** ``torch.nn.BCEWithLogitsLoss``: ``pos_weight`` of 300 / 100 for 100 positives and 300 negatives.
    """
    if sum(seen.counts) + sum(seen.others) < LABELS:
        yield Skip(f"fewer than {LABELS} labels beside class weights")
        return
    rows = list(_compared(seen))
    if len(rows) < (1 if seen.others else 2):
        return
    logs, shares = [r.weight for r in rows], [r.share for r in rows]
    middle = 0.0 if seen.others else fmean(logs) - fmean(shares)
    spread = max(map(abs, shares)) if seen.others else max(shares) - min(shares)
    follows = all(abs(r.weight - r.share - middle) <= NEAR + ERRORS * r.error for r in rows)
    as_far = seen.others or max(logs) - min(logs) >= spread - NEAR
    if spread < UNEQUAL or not follows or not as_far:
        return
    what, fix = "class weights are", "weight=counts.sum() / (len(counts) * counts)"
    if seen.others:
        what, fix = "pos_weight is", "pos_weight=negatives / positives"
    yield inverted_weights.alert(
        seen,
        f"{what} proportional to the frequency, over a factor of {math.exp(spread):.3g}: rare labels count less",
        hint=f"divide by the frequency: {fix}",
        subjects=(seen.function,),
        where=seen.where,
        evidence={"compared": len(rows), "factor": math.exp(spread), "labels": int(sum(seen.counts + seen.others))},
    )


class _Row(NamedTuple):
    """Logarithms of a weight and of the frequency beside it, and the latter's standard error."""

    weight: float
    share: float
    error: float


def _compared(seen: ClassWeights) -> Iterator[_Row]:
    for i, (weight, count) in enumerate(zip(seen.weights, seen.counts, strict=True)):
        other = seen.others[i] if seen.others else math.inf
        if weight > 0 and min(count, other) >= FEWEST:
            odds = math.log(count) - (math.log(other) if seen.others else 0.0)
            yield _Row(math.log(weight), odds, math.sqrt(1 / count + 1 / other))
