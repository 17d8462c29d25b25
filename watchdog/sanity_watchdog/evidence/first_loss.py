"""The first loss, before any weight has changed."""

import math
from dataclasses import dataclass

from .base import Evidence


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
        clipped: does the Trainer clip gradients to a norm?
        head: parameter that made the scores. head_scale: rms of its weights times the square root of its inputs.
        resumed: does the run continue from a checkpoint, or hold on to what it had learnt before?
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
    clipped: bool = False
    head: str = ""
    head_scale: float = math.nan
    resumed: bool = False

    @property
    def excess(self) -> float:
        """How far the loss lies above what is expected."""
        return self.seen - self.expected
