"""How the loss develops."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Score:
    """One supervised loss call at one sample.

    Attributes:
        attempt: optimizer steps before it. samples: training samples seen before it.
        value: mean loss. chance: what knowing nothing costs: ln k, ln 2, or the variance of the targets.
        entropy: entropy of the labels of this call, NaN where it has none.
        spread: largest deviation of a score between samples, NaN where it was not measured.
    """

    attempt: int
    samples: int
    value: float
    chance: float
    entropy: float = math.nan
    spread: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Supervision(Evidence):
    """Base of what is known of a loss on labels or targets of the batch."""


@dataclass(frozen=True, kw_only=True)
class Learning(Supervision):
    """One supervised loss call over the samples so far.

    Attributes:
        function: the loss function. where: the user's line. classes: outputs, 0 where it has no classes.
        scores: the samples, oldest first; the first one is always kept.
        recent: mean of the last losses that the step returned, where they are this call's, else NaN.
        rate: largest learning rate now, NaN where it cannot be read. peak: largest so far.
        rising: did it rise since the last sample?
        resumed: does the run continue another one? per_epoch: batches per epoch.
    """

    function: str
    where: str = ""
    classes: int = 0
    scores: tuple[Score, ...]
    recent: float = math.nan
    rate: float = math.nan
    peak: float = math.nan
    rising: bool = False
    resumed: bool = False
    per_epoch: float = math.inf

    @property
    def scope(self) -> str:
        return self.where or self.stage


@dataclass(frozen=True, kw_only=True)
class Losses(Evidence):
    """The losses that training steps returned, one per batch.

    Attributes:
        values: the last ones, oldest first, not divided by the accumulation. last: batch of the last one.
        fresh: how many of them no earlier evidence has shown.
        before: number of losses before ``values``. highest: the largest of those, NaN for none.
        over: will there be no more? clipped: does the Trainer clip gradients?
    """

    values: tuple[float, ...]
    last: int
    fresh: int
    before: int = 0
    highest: float = math.nan
    over: bool = False
    clipped: bool = False


EMPTY, HALF = "empty ", "float16 "
"""Before the name of a culprit that makes one number of none; of one that can do it in that format alone."""


@dataclass(frozen=True)
class Culprit:
    """An operation that made NaN or infinity of finite numbers. ``low``, ``high``: their extremes, of a divisor the
    magnitudes; ``low`` is minus infinity where a mask went in. ``where``: the user's line."""

    operation: str
    where: str = ""
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Spoiled:
    """A parameter or buffer that was not finite when the loss was not, before its backward.

    Attributes:
        name: its name. by_others: is what the optimizer keeps of it finite, or is it a buffer, so that no gradient was
            the cause?
    """

    name: str
    by_others: bool = False


@dataclass(frozen=True, kw_only=True)
class LossFinite(Evidence):
    """The first loss that is not finite, with what was seen around it.

    Attributes:
        batch: number of the batch, -1 where all losses were finite. value: its loss.
        earlier: finite losses before it, oldest first. recovered: was a later loss finite?
        size: samples in the batch, -1 where unknown. usual: samples in most batches.
        bad_input: the batch's tensor with NaN or infinity, of this batch or an earlier one. bad_batch: that batch.
        ignored: did every label of the batch equal ``ignore_index``?
        precision: of the Trainer.
        hazards: operations of the first step's graph that can divide by zero or take its logarithm.
        culprit: the operation that was seen to do it.
        spoiled: what was not finite before.
    """

    batch: int = -1
    value: float = math.nan
    earlier: tuple[float, ...] = ()
    recovered: bool = False
    size: int = -1
    usual: int = 0
    bad_input: str = ""
    bad_batch: int = -1
    ignored: bool = False
    precision: str = "32-true"
    hazards: tuple[str, ...] = ()
    culprit: Culprit | None = None
    spoiled: Spoiled | None = None


@dataclass(frozen=True, kw_only=True)
class LeakedTarget(Supervision):
    """Whether columns of the model's input tell the label that it has to predict.

    Attributes:
        path: the input. where: line of the loss call.
        column: the first of the columns that tell it, -1 where none or not all of its classes are told.
        telling: how many columns have one value per class, or equal a regression's target.
        counts: labels per class; empty for a regression. samples, features: size of the table.
    """

    path: str
    where: str = ""
    column: int = -1
    telling: int = 0
    counts: tuple[int, ...] = ()
    samples: int = 0
    features: int = 0
