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


@dataclass(frozen=True)
class Cut:
    """Where a value lost its gradient history.

    Attributes:
        operation: ``argmax``, ``detach``, ``no_grad``, ``item``, …
        where: the user's line.
    """

    operation: str
    where: str = ""


@dataclass(frozen=True)
class Spread:
    """Shapes that were broadcast against each other, the user's line, and what was done with them there.

    ``sure``: one of them is data, so that pairs cannot be meant.
    """

    where: str
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    operation: str = "subtraction"
    sure: bool = True


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape that both broadcast to, None where they do not fit."""
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(y if x == 1 else x for x, y in pairs)


def batch_meets_batch(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Do shapes of different rank, led by one batch size, broadcast so that every sample meets every other?"""
    if len(a) == len(b) or not a or not b or a[0] != b[0] or a[0] < 2:
        return False
    both = broadcast(a, b)
    return both is not None and math.prod(both) > max(math.prod(a), math.prod(b))


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
class AcrossLoss(ByHandLoss):
    """A softmax over the samples, whose logarithms are picked or summed up over another axis, sample by sample."""


@dataclass(frozen=True, kw_only=True)
class AcrossVectors(LossSeen):
    """Scores that are products of vectors whose length is one along another axis than the one that they sum up."""


@dataclass(frozen=True, kw_only=True)
class SquashedTwice(LossSeen):
    """A softmax or sigmoid, or the logarithm of one, of what ``origin``, one over the same values, has made."""


@dataclass(frozen=True, kw_only=True)
class FirstLoss(Evidence):
    """A loss before any weight has changed, and what a guess without knowledge would cost. All in nats per target.

    Attributes:
        kind: ``softmax``, ``binary``, ``divergence``; ``scores`` for what labels drawn at random would cost where a
            ``log_softmax`` but no loss call was seen; ``returned`` for the step's own loss.
        function, where, reduction: of the call.
        reported: what the call returned; the mean where it returned one value each.
        if_uniform, if_constant: what it would return for equal probabilities and for the best constant, with its
            weights, smoothing and reduction.
        seen: mean over the valid targets, without class weights and smoothing.
        expected: the same for equal probabilities. name: how people write it, such as ``ln 10``.
        standard_error: of ``seen``, from the spread between samples; NaN where there is only one target.
        targets: valid targets. samples: independent samples among them.
        classes: number of classes, 0 where there are none.
        spread: part of the excess that comes from scores that differ, whatever the labels.
        common: part of ``spread`` that is the same in every row. top_class: the class that it favours.
        fit: part of the excess that comes from the labels; below 0 where the scores know them.
        prior: cost of the best constant guess (the entropy of the labels).
        contrastive: are the targets positions of candidates (0, 1, 2, … or all 0) instead of classes?
        cosine: were the scores made from normalised vectors, or as products of codes that are drawn in the step, so
            that their scale is a choice?
        derived: are these probabilities that no known activation made, so that they may start anywhere?
        undivided: does the value enter the step's loss as a sum over its targets?
        in_bits: is the step's loss this value divided by ln 2?
        rate: learning rate where the optimizer's steps grow with the loss, else NaN.
        head: parameter that made the scores. head_scale: rms of its weights times the square root of its inputs.
        resumed: does the run continue from a checkpoint?
    """

    kind: str
    function: str
    where: str = ""
    reduction: str = "mean"
    reported: float = math.nan
    if_uniform: float = math.nan
    if_constant: float = math.nan
    seen: float
    expected: float
    name: str
    standard_error: float = 0.0
    targets: int = 0
    samples: int = 0
    classes: int = 0
    spread: float = math.nan
    common: float = math.nan
    top_class: int = -1
    fit: float = math.nan
    prior: float = math.nan
    contrastive: bool = False
    cosine: bool = False
    derived: bool = False
    undivided: bool = False
    in_bits: bool = False
    rate: float = math.nan
    head: str = ""
    head_scale: float = math.nan
    resumed: bool = False

    @property
    def excess(self) -> float:
        """How far the loss lies above what is expected."""
        return self.seen - self.expected


@dataclass(frozen=True, kw_only=True)
class Difference(Evidence):
    """Two tensors that a loss, or the user's own arithmetic, has brought together element by element.

    Attributes:
        function: the loss, or ``subtraction``, ``multiplication``, ``division``, ``addition``.
        spread: shapes of both before they are broadcast, and the user's line.
    """

    function: str
    spread: Spread


@dataclass(frozen=True, kw_only=True)
class DetachedLoss(Evidence):
    """The loss that the step returned, and whether a gradient can flow from it.

    Attributes:
        attached: does it have a gradient history that ends in a parameter?
        history: does it have one at all?
        cut: where the history ends, where that was seen.
    """

    attached: bool
    history: bool = False
    cut: Cut | None = None


@dataclass(frozen=True, kw_only=True)
class DetachedTerm(DetachedLoss):
    """A term of the loss, compared by ``function`` at ``where``, through which no gradient flows."""

    attached: bool = True
    function: str
    where: str

    @property
    def scope(self) -> str:
        return self.where
