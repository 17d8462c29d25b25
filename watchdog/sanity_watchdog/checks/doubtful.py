"""What a loss is given that can be meant, but rarely is."""

import math

from ..alerts import Severity
from ..evidence.losses import AcrossLoss, AcrossVectors, BinaryLoss, ByHandLoss, CutLoss, DivergenceLoss, LossSeen

RAW = "give it the raw counts; standardised targets want mse_loss or gaussian_nll_loss"
"""What to do about counts below zero."""


TOGETHER = 1.5
"""Sum of a sample's targets from which there is more than one right answer, smoothed labels allowed for."""


def by_hand(seen: ByHandLoss) -> tuple[str, str]:
    """What is wrong with a loss that no function of torch's computes, and what to do."""
    if isinstance(seen, AcrossLoss):
        return (
            "sums to 1 over the samples, but the answer of each sample is taken from another axis",
            "give softmax and log_softmax the axis of the classes: dim=-1",
        )
    if isinstance(seen, CutLoss):
        return (
            f"of scores that are cut to {seen.low:.3g} … {seen.high:.3g}: {seen.edges:.0%} lie at an edge",
            "use binary_cross_entropy_with_logits without the clamp, or a sigmoid before it",
        )
    return (
        f"(Dice, IoU) of raw scores from {seen.low:.3g} to {seen.high:.3g}; it is one of probabilities",
        "take a sigmoid before it, or a softmax over exclusive classes",
    )


def doubtful(seen: LossSeen) -> tuple[str, str, Severity] | None:
    """Message, hint and severity; None where nothing is odd."""
    if isinstance(seen, DivergenceLoss) and seen.reduction == "mean" and len(seen.shape) > 1:
        return (
            f"{seen.function} divides by all {math.prod(seen.shape):,} elements, not by the samples: reduction='mean'",
            "pass reduction='batchmean' for the divergence of a sample",
            Severity.INFO,
        )
    if isinstance(seen, AcrossVectors):
        return (
            f"{seen.function} gets products of vectors that were not normalised one by one, but over all of them",
            "normalise each vector: F.normalize(z, dim=-1)",
            Severity.WARNING,
        )
    if isinstance(seen, BinaryLoss) and not seen.logits and _is_softmax_of_classes(seen):
        if seen.together >= TOGETHER:
            return (
                f"{seen.function} gets a softmax, which sums to 1, where up to {seen.together:.3g} classes are right",
                "use binary_cross_entropy_with_logits on the scores: a sigmoid for each class",
                Severity.WARNING,
            )
        return (
            f"{seen.function} gets a softmax over {seen.shape[-1]} classes, each taken for a question of its own",
            "use cross_entropy on the scores for one class each, binary_cross_entropy_with_logits for several",
            Severity.INFO,
        )
    return None


def _is_softmax_of_classes(seen: BinaryLoss) -> bool:
    origin = seen.origin
    if origin is None or origin.name != "softmax" or not origin.shape == seen.shape == seen.target_shape:
        return False
    return len(seen.shape) > 1 and origin.axis == len(seen.shape) - 1 and seen.shape[-1] > 1
