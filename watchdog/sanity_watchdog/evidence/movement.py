"""How far the optimizers move what they hold."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, slots=True)
class Stride:
    """One step of one optimizer.

    Attributes:
        attempt: number of the attempt.
        lr: largest learning rate of its groups; NaN where it is kept on a device.
        ratio: root mean square of the update over that of the weights, pooled over the matrices; NaN for none.
        matrices: matrices that it is pooled over: none that started at zero, no embeddings.
        growth: root mean square of the weights before the step over that at their first sample, likewise pooled.
    """

    attempt: int
    lr: float
    ratio: float
    matrices: int
    growth: float = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The steps of one optimizer.

    Attributes:
        optimizer: its number. kind: its class. searching: does it choose its step length by itself?
        early: its first samples.
        top: sample with the largest ratio since the rate last rose to more than twice its largest value.
        counted: number of samples since then.
        last: its latest samples, oldest first. fastest: largest rate of any sample.
    """

    optimizer: int
    kind: str
    searching: bool
    early: tuple[Stride, ...]
    top: Stride
    counted: int
    last: tuple[Stride, ...] = ()
    fastest: float = math.nan


@dataclass(frozen=True, slots=True)
class Still:
    """A parameter that has gradients and a learning rate, and has not moved in any sample.

    Attributes:
        name: its first name. numel: its size. matrix: has it two dimensions or more?
        samples: number of samples in which it should have moved.
    """

    name: str
    numel: int
    matrix: bool
    samples: int


@dataclass(frozen=True, kw_only=True)
class Movement(Evidence):
    """All optimizers' steps so far.

    Attributes:
        paces: one per optimizer that has stepped.
        still: parameters that should have moved.
        elements: elements of all parameters that have been looked at.
        half: are there half-precision parameters, in which small updates round away?
        planned: attempts of the whole run, as far as can be foreseen; ``inf`` where no end is set.
        foreseen: the same, where the run has ended before as well.
    """

    paces: tuple[Pace, ...]
    still: tuple[Still, ...] = ()
    elements: int = 0
    half: bool = False
    planned: float = math.inf
    foreseen: float = math.inf


@dataclass(frozen=True, slots=True)
class Boundary:
    """Between the end of an epoch and the first step of the next.

    Attributes:
        left: norm of what the new epoch finds of the old one's change, over the norm of that change; NaN for no
            change, and where weights were pruned.
        kinship: cosine between the weights at the end of the old epoch and those with which the new one begins.
        validated: norm of what a validation at the end of the old epoch leaves of its change, then and until the new
            one begins (the larger of the two), over the norm of that change; NaN without one.
    """

    left: float
    kinship: float
    validated: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Undone(Evidence):
    """What is left of the changes of the first steps and epochs when the next ones begin.

    Attributes:
        steps: per optimizer, for the first steps: norm of what the next step found of a step's change, over the norm of
            that change; NaN for no change.
        epochs: the first boundaries between epochs.
    """

    steps: tuple[tuple[float, ...], ...] = ()
    epochs: tuple[Boundary, ...] = ()
