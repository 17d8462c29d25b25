"""Losses that compare something with itself, or only pull outputs together."""

from ..alerts import Severity
from ..evidence.targets import Attraction, Likeness
from .check import Findings, check

EXACT, ROUNDED = 8, 34
"""Optimizer steps after which equality is none of the start any more: a copy that is still being warmed up differs in
the last bit after a few steps, and by more than a softmax rounds after some tens."""
SAMPLES = 4
"""Samples at which they must have been equal, all of them."""


@check("WD114", "compared-with-itself", Severity.WARNING, Likeness)
def compared_with_itself(seen: Likeness) -> Findings:
    """A loss compares predictions with equal targets in every step: a teacher that is the student itself.

    **What it sees.** Predictions and targets of distances, of ``kl_div`` and of cross entropies on probabilities, and
    anchors and positives of triplets, where the targets differ from place to place. It alerts when they were the same
    at all samples of the first steps: to the last bit after 8 steps, within float32's rounding after 34. And scores of
    contrastive losses: it alerts when those of all positive pairs were the highest of their rows and one number, as
    where two views are one.

    **Why it matters.** This loss is zero, or at its minimum, and so is its gradient: nothing is distilled, and a
    consistency between two views or an average and its student is met by construction.

    **How to fix.** Copy the network that is to stay behind, and look at which of the two goes into the loss::

        self.teacher = self.student                                         # before: two names for one module
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)    # after

    **When to ignore.** Where the second network is meant to begin to differ much later.

    **Limits.** Dropout or BatchNorm in two modes make the two differ: such a teacher is not found. Losses written by
    hand are not seen, and calls that the step's loss does not depend on, whose parameters have the learning rate 0 or
    whose targets no parameter has made are left alone.

    **Sources.** Gradient of a distance at zero.
    """
    if seen.samples >= SAMPLES and seen.attempt >= (EXACT if seen.exact else ROUNDED):
        yield compared_with_itself.alert(
            seen,
            f"all positive pairs of {seen.function} are equal, in all {seen.samples} steps looked at"
            if seen.views
            else f"{seen.function} gets predictions that equal its targets, in all {seen.samples} steps looked at",
            hint="is each view the same, or one tensor used twice? Draw the augmentation anew for each of them"
            if seen.views
            else "are teacher and student one module, or is an output compared with itself? copy.deepcopy the one",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"samples": seen.samples, "steps": seen.attempt, "exact": seen.exact},
        )


@check("WD115", "attraction-alone", Severity.WARNING, Attraction)
def attraction_alone(seen: Attraction) -> Findings:
    """Two trained outputs are only pulled together: the best is one output for everything.

    **What it sees.** The loss of the first steps, followed from cosines (``cosine_similarity``, products of normalised
    vectors, products over both lengths, a ``cosine_embedding_loss`` whose targets are all made to be 1) through sums,
    means, diagonals and numbers as factors. It alerts when the loss enlarges cosines between outputs that both get
    gradients, and has no other term on the data.

    **Why it matters.** Nothing pushes different samples apart. With a stop-gradient on one side (SimSiam, BYOL) that
    works; without it the network collapses: the loss is at its minimum, and all outputs are the same.

    **How to fix.** Detach the side that is to be predicted, or add negatives::

        -F.cosine_similarity(self.predict(z1), z2).mean()             # before
        -F.cosine_similarity(self.predict(z1), z2.detach()).mean()    # after

    **When to ignore.** Where the network itself keeps outputs apart. Whitening and orthogonal maps are recognised.

    **Limits.** The first step, and the next two samples where it pulls: losses that take turns may push in one of them.
    Not where the step is compiled, nor where several backward passes make it up by hand. Distances of other kinds are
    not judged.

    **Sources.** Chen and He 2021, Exploring Simple Siamese Representation Learning, 4.1: without stop-gradient.
    """
    if seen.lines:
        yield attraction_alone.alert(
            seen,
            "the loss only pulls two trained outputs together: one output for everything is the best",
            hint="detach one side (z.detach()), as SimSiam and BYOL do, or add negatives",
            where=seen.lines[0],
            evidence={"places": len(seen.lines)},
        )
