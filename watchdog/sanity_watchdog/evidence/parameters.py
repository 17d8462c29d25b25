"""What the parameters hold, sample after sample."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, slots=True)
class State:
    """Values of one parameter at one sample.

    Attributes:
        attempt: number of the optimizer attempt before which it was measured.
        largest: exact largest magnitude; NaN where a NaN is in it.
        norm: exact L2 norm.
        zeros: share of exact zeros, of a sample.
        smallest: smallest magnitude that is not zero, of the same sample; NaN where all are.
    """

    attempt: int
    largest: float
    norm: float
    zeros: float
    smallest: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One parameter over the run.

    Attributes:
        name: its first name.
        shape: its shape.
        trainable: does it require a gradient?
        optimizer: number of the first optimizer that holds it, -1 for none.
        table: is it looked up by index, row by row?
        masked: does its module hold a mask of its shape, as pruning leaves it?
        pruned: was a mask of ``torch.nn.utils.prune`` beside it at some sample?
        seen: elements in the sample behind the shares.
        start: before the first step.
        now: at this sample.
        rise: the two samples in a row between which its share of zeros rose most.
        fall: the two samples in a row between which its norm fell by the largest factor.
        idle: samples in a row, up to this one, at which it and its gradient were zero in every element.
        identical: samples in a row, up to this one, at which all its units were equal although it had moved.
    """

    name: str
    shape: tuple[int, ...]
    trainable: bool
    start: State
    now: State
    rise: tuple[State, State]
    fall: tuple[State, State]
    optimizer: int = 0
    table: bool = False
    masked: bool = False
    pruned: bool = False
    seen: int = 512
    idle: int = 0
    identical: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def matrix(self) -> bool:
        """Has it two dimensions or more, each longer than one element or not?"""
        return len(self.shape) > 1


@dataclass(frozen=True, kw_only=True)
class Parameters(Evidence):
    """All parameters that one sample measured.

    Attributes:
        attempt: optimizer attempts so far.
        traces: one per parameter, in registration order.
        decay: largest product of learning rate and weight decay so far, NaN where it cannot be told, infinite where the
            decay passes through an adaptive optimizer.
    """

    attempt: int
    traces: tuple[Trace, ...]
    decay: float = math.nan
