"""Training that is taken back."""

import math

from ..alerts import Severity
from ..evidence.movement import Undone
from .check import Findings, Skip, check

LEFT = 0.05
"""Share of a change that is found again. Averages of weights that serve as the next step's start leave 0.1 to 0.5
(Reptile, Lookahead); one copied over the weights after each step leaves 1 - decay, 0.01 or less."""
STEPS = 2
"""Steps in a row that must have been undone, all that were looked at."""
EPOCHS = 2
"""The same for epochs: weights may be wound back once on purpose."""
UNTOUCHED = 0.9
"""Share of an epoch's change that a validation leaves: all of it. An average of the weights has a part of it."""
UNRELATED = 0.4
"""Cosine of weights before and after. New random numbers have 0 ± 0.1; pruning and normalising leave 0.8 or more."""


@check("WD320", "undone-steps", Severity.WARNING, Undone, implied_by=("WD303", "WD501"))
def undone_steps(seen: Undone) -> Findings:
    """What the optimizer changes is taken back, after every step, in validation or at the beginning of every epoch.

    **What it sees.** The same sampled elements of the matrices before a step, after it and before the next one, in
    three steps; and where an epoch began, where it ended and where the next one begins, over the first epochs. An
    alert needs less than 5 % of the change to be left each time, at least twice, or weights that bear no likeness to
    those with which the epoch before has ended (cosine below 0.4). Also where each validation at an epoch's end, at
    least twice, leaves less than 90 % of what the epoch has changed, and nobody puts the rest back before the next one.

    **Why it matters.** Gradients, losses and learning rate look right, and the run begins anew again and again.

    **How to fix.** Initialise once, before the fit, and copy averages and target networks in the other direction::

        def on_train_epoch_start(self):                                   # before
            self.net.load_state_dict(self.initial)
        def on_fit_start(self):                                           # after
            self.net.load_state_dict(self.initial)

        self.trained = self.net.state_dict()                              # before: the tensors themselves
        self.net.load_state_dict(self.average)                            # for the time of a validation
        self.trained = copy.deepcopy(self.net.state_dict())               # after

        self.net.load_state_dict(self.target.state_dict())                # before
        self.target.load_state_dict(self.net.state_dict())                # after

    **When to ignore.** Where a fit trains a new network in each epoch, steps are tried out and rejected, or each epoch
    is to go on from the average.

    **Limits.** The second to fourth step and the first four epochs only. A part of the model that is set back while
    others go on learning is not named. Weights that are wound back once, pruned, clipped, normalised or averaged are
    not meant.

    **Sources.** Frankle and Carbin, The Lottery Ticket Hypothesis: winding back, once per round. PyTorch's
    ``AveragedModel``: the copy follows the model, not the model the copy.
    """
    if not seen.steps and not seen.epochs:
        yield Skip("no two steps in a row were seen")
        return
    for lefts in seen.steps:
        found = [left for left in lefts if not math.isnan(left)]
        if len(found) >= STEPS and max(found) < LEFT:
            yield undone_steps.alert(
                seen,
                f"{max(found):.2%} of what a step changes is left before the next one; limit {LEFT:.0%}",
                hint="look for code that puts older weights back after the step, or copies an average or a target "
                "over the trained weights",
                evidence={"left": max(found), "limit": LEFT, "steps": len(found)},
            )
            return
    if len(seen.epochs) < EPOCHS:
        return
    left = max((b.left for b in seen.epochs), key=_or_all)
    kinship = max((b.kinship for b in seen.epochs), key=_or_all)
    if left < LEFT or kinship < UNRELATED:
        epochs = len(seen.epochs)
        yield undone_steps.alert(
            seen,
            f"{left:.2%} of what an epoch changes is left when the next one begins, in {epochs} of {epochs}"
            if left < LEFT
            else f"the weights begin anew with each epoch: likeness to the last one's {kinship:.2f}; limit {UNRELATED}",
            hint="load or reset weights once before the fit, not in a hook that runs in every epoch",
            evidence={"left": left, "limit": LEFT, "kinship": kinship, "epochs": epochs},
        )
        return
    validated = [b.validated for b in seen.epochs if not math.isnan(b.validated)]
    if len(validated) >= EPOCHS and max(validated) < UNTOUCHED:
        yield undone_steps.alert(
            seen,
            f"validation leaves {max(validated):.0%} of what an epoch has changed, in {len(validated)} of "
            f"{len(validated)}; limit {UNTOUCHED:.0%}",
            hint="put the trained weights back after validation, from a clone: state_dict() holds the very tensors",
            evidence={"left": max(validated), "limit": UNTOUCHED, "epochs": len(validated)},
        )


def _or_all(share: float) -> float:
    return 1.0 if math.isnan(share) else share
