"""What losses that want log-probabilities are given."""

import math

from ..evidence.alignments import AlignmentLoss
from ..evidence.losses import DivergenceLoss, LossSeen, SoftmaxLoss

SUM_ERROR = 2e-5
"""Rounding of a float32 softmax: a few units in the last place of 1, over the classes."""
ENOUGH = 3
"""rows x (classes - 1) from which random float32 logits never (none in 100,000) look like probabilities."""
ENOUGH_ROWS = 4
"""Rows from which the same holds in half precision, with at least 8 in the product."""
ENOUGH_HALF = 8
NORMALISED = 0.1
"""Distance of a row's sum from 1, or of its logsumexp from 0, that no rounding makes: log-probabilities that bfloat16
has made are off by 0.03, and an epsilon added to each of many probabilities adds up."""
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}


def sums_to_one(error: float, low: float, high: float, rows: int, classes: int, dtype: str) -> bool:
    """Are rows within rounding of probabilities, and are there enough of them to say so?"""
    eps = EPS.get(dtype, 0.0)
    tolerance = SUM_ERROR + eps / 2 + classes * SMALLEST.get(dtype, 0.0) / 2
    size = rows * (classes - 1)
    enough = size >= ENOUGH if not eps else size >= ENOUGH_HALF and rows >= ENOUGH_ROWS
    return enough and error <= tolerance and low >= -tolerance and high <= 1 + tolerance


def wrong_divergence(seen: DivergenceLoss) -> tuple[str, str]:
    """What is wrong with the two arguments of ``kl_div``, and what to do; empty for nothing."""
    if seen.log_target and seen.target_high > NORMALISED:
        return (
            f"with log_target=True gets targets up to {seen.target_high:.3g}; logarithms of probabilities are ≤ 0",
            "pass log_target=False for probabilities",
        )
    if not seen.log_target and seen.target_low < 0:
        return (
            f"gets negative targets (down to {seen.target_low:.3g}); probabilities are ≥ 0",
            "swap the two arguments: log-probabilities come first"
            if seen.sum_error <= NORMALISED and seen.low >= 0
            else "pass log_target=True for log-probabilities",
        )
    if not math.isnan(seen.low) and not seen.log_error <= log_tolerance(seen):
        kind = "probabilities" if seen.sum_error <= SUM_ERROR + EPS.get(seen.dtype, 0.0) else "no log-probabilities"
        return (
            f"gets {kind} as its input: their logsumexp is {seen.log_error:.3g} from 0",
            "use log_softmax for the first argument of kl_div",
        )
    return "", ""


def wrong_alignment(seen: AlignmentLoss) -> tuple[str, str]:
    """The same of ``ctc_loss``."""
    steps, samples, classes = seen.shape
    if seen.error and seen.lengths == steps != samples:
        return (
            f"gets {seen.shape} for {seen.lengths} input lengths; it takes (time, batch, classes)",
            "put the batch on axis 1: log_probs.transpose(0, 1)",
        )
    origin, fix = seen.origin, "take log_softmax over the last axis for the first argument of ctc_loss"
    if origin is not None and origin.name in ("softmax", "log_softmax") and origin.axis is not None:
        taken = origin.shape[origin.axis]
        if len(origin.shape) == 3 and taken != classes and classes in origin.shape:
            return f"gets a softmax over an axis of {taken}, not over its {classes} classes", fix
    if sums_to_one(seen.sum_error, seen.low, seen.high, seen.rows, classes, seen.dtype):
        return "gets probabilities, not their logarithms (each step sums to 1)", "use log_softmax instead of softmax"
    if not seen.logs and seen.log_error > log_tolerance(seen):
        return f"gets raw scores: logsumexp of a step is {seen.log_error:.3g} from 0", fix
    return "", ""


def is_complement(seen: SoftmaxLoss) -> bool:
    """Are they logarithms of 1 - p, as where a class is to be made unlikely? Those p sum to 1."""
    mass = math.exp(min(seen.log_error, 700.0))
    return seen.high <= 0 and abs(mass - (seen.classes - 1)) <= NORMALISED


def log_tolerance(seen: LossSeen) -> float:
    """How far the logsumexp of log-probabilities may be from 0: each is rounded by half a unit of its own size."""
    eps = EPS.get(seen.dtype, 0.0)
    return NORMALISED + (eps * max(abs(seen.low), abs(seen.high)) if eps else 0.0)
