"""What the targets of a loss show."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class TargetRange(Evidence):
    """The targets that one loss call was given, or that it has been given so far.

    Attributes:
        function: the loss function. where: the user's ``file:line``.
        classes: outputs that the labels must fit; 0 for targets that are no labels.
        low, high: extremes of the targets that are not ignored; NaN where all are.
        ignore_index: the label that is left out; None where the function has none.
        valid, total: targets that count, and all of them; -1 where they were not counted.
        reduction: of the call.
        dtype: number format of the targets. shape, input_shape: shapes of the targets and of the scores.
        whole_samples: is there one target per sample (neither pixels nor tokens)?
        sum_low, sum_high: extremes of the sums over the classes of soft targets, NaN elsewhere.
        error: what the call raised, as text.
    """

    function: str
    where: str = ""
    classes: int = 0
    low: float = math.nan
    high: float = math.nan
    ignore_index: int | None = None
    valid: int = -1
    total: int = -1
    reduction: str = "mean"
    dtype: str = "int64"
    shape: tuple[int, ...] = ()
    input_shape: tuple[int, ...] = ()
    whole_samples: bool = False
    sum_low: float = math.nan
    sum_high: float = math.nan
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class LabelHistory(Evidence):
    """Class labels of one loss call over the samples so far.

    Attributes:
        function, where: of the call.
        classes: outputs that the labels must fit.
        counts: labels seen, one number per sample, oldest first. highs: the highest label so far at each.
        distinct: different labels in the richest sample.
        tokens: are tokens of a vocabulary or positions of candidates predicted, of which most never turn up?
    """

    function: str
    where: str = ""
    classes: int
    counts: tuple[int, ...]
    highs: tuple[int, ...]
    distinct: int
    tokens: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenTargets(Evidence):
    """Targets that belong to the ids of an embedding, position by position.

    Attributes:
        function, where: of the loss call.
        causal: was anything seen that keeps positions from seeing later ones?
        length: positions of a row. valid: targets that count.
        agreement: share of the valid targets that equal the ids ``shift`` positions later, by shift: at least
            -1, 0, 1, 2; over all embeddings the largest.
        elsewhere: is another loss call of this step aligned one position ahead?
        padding: share of the valid targets inside a run of one token at the end of its row.
        token: that token. inside: its share of the other targets.
        labelled: share of the valid targets whose id is padding, where all of those have one label; else 0.
        distinct: different ids. left_out: different ids where no target counts, 0 where the two do not lie alike.
    """

    function: str
    where: str = ""
    causal: bool = False
    length: int = 0
    valid: int = 0
    agreement: tuple[tuple[int, float], ...] = ()
    elsewhere: bool = False
    padding: float = 0.0
    token: int = -1
    inside: float = 0.0
    labelled: float = 0.0
    distinct: int = 0
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class ClassWeights(Evidence):
    """Class weights of a loss call, and how often the classes came.

    Attributes:
        function, where: of the loss call.
        weights: per class, or ``pos_weight`` per column. counts: labels of that class, or ones in that column, so far.
        others: labels of a column that are not one; empty for class weights.
    """

    function: str
    where: str = ""
    weights: tuple[float, ...]
    counts: tuple[float, ...]
    others: tuple[float, ...] = ()

    @property
    def scope(self) -> str:
        return self.where or self.stage


@dataclass(frozen=True, kw_only=True)
class Likeness(Evidence):
    """Whether the predictions of a loss call equal its targets, which differ from place to place.

    Attributes:
        function, where: of the loss call.
        samples: samples at which they did, if they did at all so far; else 0.
        exact: to the last bit. attempt: optimizer steps before the last sample.
        views: instead, whether the score of every positive pair of a contrastive loss is the highest, and one number.
    """

    function: str
    where: str = ""
    samples: int = 0
    exact: bool = False
    attempt: int = 0
    views: bool = False

    @property
    def scope(self) -> str:
        return self.where or self.stage


@dataclass(frozen=True, kw_only=True)
class Attraction(Evidence):
    """Where the step's loss enlarges nothing but cosines between two outputs that both are trained; empty elsewhere."""

    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DrawnNoise(Evidence):
    """What is wrong with the noise that a step draws for its loss.

    Attributes:
        kind: ``unseen``: a target of noise other than that in the network's input; ``copied``: a target that is that
            noisy input; ``even``: noise drawn evenly from 0 to 1; ``cut``: codes of a variational network are drawn
            without a gradient; ``log``, ``variance``: their noise is multiplied by the logarithm of the variance, or by
            the variance. Empty where nothing is.
        where: the user's line. origin: where the noise that was meant is drawn.
    """

    kind: str = ""
    where: str = ""
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class Penalty(Evidence):
    """Lines of what is wrong with a gradient penalty; empty where nothing is.

    Attributes:
        pieces: lengths of slopes of which a sample has several, each to be 1.
        mixed: samples between two, by weights that differ within a sample.
    """

    pieces: str = ""
    mixed: str = ""


@dataclass(frozen=True, kw_only=True)
class Alliance(Evidence):
    """Line of the last layer whose scores of what one player makes two players pull the same way; empty for none."""

    where: str = ""
