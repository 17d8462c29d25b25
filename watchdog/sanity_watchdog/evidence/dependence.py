"""Which inputs an output depends on."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True)
class Suspect:
    """An operation that may be why positions or samples see each other.

    Attributes:
        kind: ``both ways`` (a recurrence), ``both sides`` (a padded convolution), ``padded`` (also at the end),
            ``unmasked`` (attention), ``reshaped`` (two axes exchanged by a reshape), ``samples moved`` (that of the
            samples among them), ``time first`` (a layer that got the samples as time), ``over the batch`` (softmax over
            the first axis), ``dropped`` (a mask whose result nobody takes).
        operation: the function. module: name of its module, empty where it has none. where: the user's line.
    """

    kind: str
    operation: str
    module: str = ""
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Dependence(Evidence):
    """What one row of the scores of a loss call depends on, asked of the first step's graph.

    Attributes:
        function: the loss function. where: the user's line.
        samples: samples in the batch. scored: those with scores of their own, 0 where that is not known.
        shape: shape of the scores.
        connected: is there a path from the data to the scores? None where that was not asked.
        sharing: share of the other samples that the row depends on, NaN where it was not asked.
        influence: the largest of them, relative to the row's own sample.
        own: the sample whose scores were asked, -1 where that is not known. others: other samples that they depend on.
        astray: one of those, where no scores depend on their own sample and no shift explains it, else -1.
        single: do two rows depend on that one alone?
        later: influence of later positions relative to that of the earlier ones, NaN where it was not asked.
        position: the row's position. length: positions of its sequence.
        before: positions of the input before those that the targets are.
        sequential: the recurrent function that takes the axis of the batch for that of time, empty for none.
        suspects: operations of the step that may be why, in their order.
        inverted: line of attention whose padding mask hides the tokens and keeps the padding; empty for none.
        placed: line of an addition of a table of positions whose axis is that of the samples; empty for none.
        torn: line of a reshape of the last states of a recurrent layer that takes layers for samples; empty for none.
        lone: line of a softmax over an axis of length one whose result weighs positions; empty for none.
        reason: why nothing could be asked. mixing_reason, causal_reason: why not that.
    """

    function: str = ""
    where: str = ""
    samples: int = 0
    scored: int = 0
    shape: tuple[int, ...] = ()
    connected: bool | None = None
    sharing: float = math.nan
    influence: float = math.nan
    own: int = -1
    others: int = 0
    astray: int = -1
    single: bool = False
    later: float = math.nan
    position: int = -1
    length: int = 0
    before: int = 0
    sequential: str = ""
    suspects: tuple[Suspect, ...] = ()
    inverted: str = ""
    placed: str = ""
    torn: str = ""
    lone: str = ""
    reason: str = ""
    mixing_reason: str = ""
    causal_reason: str = ""

    @property
    def scope(self) -> str:
        return self.where or self.stage


@dataclass(frozen=True, kw_only=True)
class PositionWeights(Evidence):
    """Weights of positions in the first step that mean something else than they should.

    Attributes:
        across: line of a softmax over the queries, whose weights then sum up the keys; empty for none.
        masked: line of a mask of zeros and ones that scores are multiplied by before a softmax; empty for none.
        unmasked: line of attention that no mask keeps from padding; empty for none. padding: share of the positions.
    """

    across: str = ""
    masked: str = ""
    unmasked: str = ""
    padding: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reordered(Evidence):
    """The first reshape of a step that gave values of the batch their axes in another order; ``operation`` is empty
    where there was none.

    Attributes:
        where: the user's line. before, after: shapes.
    """

    operation: str = ""
    where: str = ""
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UnusedResult(Evidence):
    """The first operation of a step whose new result nobody takes, and its line; empty where there was none.

    ``twin``: there is an in-place one of the same name.
    """

    operation: str = ""
    where: str = ""
    twin: bool = False
