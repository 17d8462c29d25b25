"""What the calls of loss functions show."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True)
class Origin:
    """The activation that made a tensor, views and casts in between not counted.

    Attributes:
        name: ``softmax``, ``log_softmax``, ``sigmoid``, ``relu``, ``tanh``, …
        shape: shape of its result.
        axis: the axis it normalised, from 0, or None.
        where: the user's line.
    """

    name: str
    shape: tuple[int, ...] = ()
    axis: int | None = None
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class LossSeen(Evidence):
    """One call of a loss function.

    Attributes:
        function: its name, such as ``cross_entropy``.
        where: the user's ``file:line``.
        shape, target_shape: shapes of its first argument and of its targets.
        dtype: number format of its first argument, such as ``float32``.
        reduction: ``mean``, ``sum``, ``none`` or ``batchmean``.
        value: what it returned; the mean where it returned one value each.
        low, high: extremes of its first argument, of a bounded sample.
        origin: the activation that made its first argument, where one was seen.
        followed: False where nothing is known of origins. raw: did a layer make it, and no activation after that?
        error: what it raised instead of returning, as text.
        negated: is the step's loss minus this value, for an optimizer that minimises?
    """

    function: str
    where: str = ""
    shape: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()
    dtype: str = "float32"
    reduction: str = "mean"
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    origin: Origin | None = None
    followed: bool = True
    raw: bool = False
    error: str = ""
    negated: bool = False


@dataclass(frozen=True, kw_only=True)
class SoftmaxLoss(LossSeen):
    """A call of ``cross_entropy``, ``nll_loss`` or a fused form of them. Sums and logarithms run over the classes.

    Attributes:
        classes: length of the class axis.
        axis: the class axis.
        rows: rows of scores that were looked at.
        sum_error: largest distance of a row's sum from 1.
        column_error: largest distance of a column's sum from 1, where all rows of a matrix were looked at.
        log_error: largest distance of a row's logsumexp from 0.
        zeros: share of exact zeros.
        logs: do the scores descend from a ``log_softmax``?
        soft: are the targets probabilities?
        crossed: did the last layer put as many outputs on another axis than the class axis?
        repeated: is one output of the last layer more than one of as many classes of a row?
        itself: where the scores are those of a batch with itself, what a sample's score with itself is: its ``label``,
            or an open ``rival`` of it that is always the highest; else empty.
        perfect: what the best possible scores would cost with these targets, as the call reports it.
        mass: weight of all targets that its value is a sum or mean over: 1 for a plain mean, their number for a sum.
    """

    classes: int
    axis: int = 1
    rows: int = 0
    sum_error: float = math.nan
    column_error: float = math.nan
    log_error: float = math.nan
    zeros: float = 0.0
    logs: bool = False
    soft: bool = False
    crossed: bool = False
    repeated: bool = False
    itself: str = ""
    perfect: float = math.nan
    mass: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BinaryLoss(LossSeen):
    """A call of binary cross entropy.

    Attributes:
        logits: does it apply the sigmoid itself?
        zeros: share of exact zeros in the first argument. edges: share that equals one of its extremes.
        perfect: what the best possible scores would cost with these targets, as the call reports it.
        terms: sizes of the terms that it adds up, as the call reduces; 0 where they have one sign.
        together: largest sum of the targets along the last axis.
    """

    logits: bool = True
    zeros: float = 0.0
    edges: float = 0.0
    perfect: float = math.nan
    terms: float = 0.0
    together: float = math.nan


@dataclass(frozen=True, kw_only=True)
class DivergenceLoss(LossSeen):
    """A call of ``kl_div``.

    Attributes:
        log_error: smallest over the axes, and over the last ones together, of the largest distance of a logsumexp of
            the input from 0.
        sum_error: the same for plain sums and 1.
        target_low, target_high: extremes of the targets.
        log_target: are the targets meant to be log-probabilities?
    """

    log_error: float = math.nan
    sum_error: float = math.nan
    target_low: float = math.nan
    target_high: float = math.nan
    log_target: bool = False


@dataclass(frozen=True, kw_only=True)
class DistanceLoss(LossSeen):
    """A call of a regression loss; ``low`` and ``high`` are those of the predictions.

    Attributes:
        zeros: share of exact zeros in the predictions.
        target_low, target_high: extremes of the targets.
        negative, above_one, below_minus_one: shares of the targets below 0, above 1 and below -1.
    """

    zeros: float = 0.0
    target_low: float = math.nan
    target_high: float = math.nan
    negative: float = 0.0
    above_one: float = 0.0
    below_minus_one: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Likelihood(LossSeen):
    """A log-likelihood of the batch's own data that the step minimises; ``value`` is the step's loss.

    ``divergence``: it is minus the divergence of a Gaussian from a fixed one instead. ``distance``: it is minus an
    error written by hand, and ``value`` minus the step's loss. ``surrogate``: it is the smaller side of PPO's clipped
    surrogate. ``scale``: it is a log-scale with which what it scales falls as well.
    """

    negated: bool = True
    divergence: bool = False
    distance: bool = False
    surrogate: bool = False
    scale: bool = False


@dataclass(frozen=True, kw_only=True)
class ByHandLoss(LossSeen):
    """A loss that no function of torch's computes."""


@dataclass(frozen=True, kw_only=True)
class OverlapLoss(ByHandLoss):
    """Scores straight out of a layer, divided like the overlap of probabilities and a mask (Dice, IoU) by hand."""


@dataclass(frozen=True, kw_only=True)
class CutLoss(ByHandLoss):
    """A binary cross entropy of a layer's scores that are clamped between 0 and 1; ``edges``: share at an edge."""

    edges: float


@dataclass(frozen=True, kw_only=True)
class AcrossLoss(ByHandLoss):
    """A softmax over the samples, whose logarithms are picked or summed up over another axis, sample by sample."""


@dataclass(frozen=True, kw_only=True)
class AcrossVectors(LossSeen):
    """Scores that are products of vectors whose length is one along another axis than the one that they sum up."""


@dataclass(frozen=True, kw_only=True)
class SquashedTwice(LossSeen):
    """A softmax or sigmoid, or the logarithm of one, of what ``origin``, one over the same values, has made."""
