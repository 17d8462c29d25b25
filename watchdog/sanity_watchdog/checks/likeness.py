"""Losses that compare something with itself."""

from ..alerts import Severity
from ..evidence.targets import Likeness
from .check import Findings, check

EXACT, ROUNDED = 8, 34
"""Optimizer steps after which equality is none of the start any more: a copy that is still being warmed up differs in
the last bit after a few steps, and by more than a softmax rounds after some tens."""
SAMPLES = 4
"""Samples at which they must have been equal, all of them."""


@check("WD114", "compared-with-itself", Severity.WARNING, Likeness)
def compared_with_itself(seen: Likeness) -> Findings:
    """A loss compares predictions with equal targets in every step: a teacher that is the student itself.

    **What it sees.** Predictions and targets of distances, of ``kl_div`` and of cross entropies on probabilities, where
    the targets differ from place to place. It alerts when they were the same at all samples of the first steps: to the
    last bit after 8 steps, within float32's rounding after 34.

    **Why it matters.** This loss is zero, or at its minimum, and so is its gradient: nothing is distilled, and a
    consistency between two views or an average and its student is met by construction.

    **How to fix.** Copy the network that is to stay behind, and look at which of the two goes into the loss::

        self.teacher = self.student                                         # before: two names for one module
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)    # after

    **When to ignore.** Where the second network is meant to begin to differ much later.

    **Limits.** Dropout or BatchNorm in two modes make the two differ: such a teacher is not found. Losses written by
    hand are not seen.

    **Sources.** Gradient of a distance at zero.
    """
    if seen.samples >= SAMPLES and seen.attempt >= (EXACT if seen.exact else ROUNDED):
        yield compared_with_itself.alert(
            seen,
            f"{seen.function} gets predictions that equal its targets, in all {seen.samples} steps looked at",
            hint="are teacher and student one module, or is an output compared with itself? copy.deepcopy the one",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"samples": seen.samples, "steps": seen.attempt, "exact": seen.exact},
        )
