"""What calls of ``ctc_loss`` show, which aligns letters with time steps."""

import math
from dataclasses import dataclass

from .losses import LossSeen
from .targets import TargetRange


@dataclass(frozen=True, kw_only=True)
class AlignmentLoss(LossSeen):
    """The first argument of a call of ``ctc_loss``, ``shape`` (time, batch, classes). Only steps that count are read.

    Attributes:
        classes: length of the last axis. rows: steps that were looked at.
        sum_error: largest distance of a step's sum from 1. log_error: of its logsumexp from 0.
        logs: do they descend from a ``log_softmax``?
        lengths: how many input lengths were given.
    """

    classes: int
    rows: int = 0
    sum_error: float = math.nan
    log_error: float = math.nan
    logs: bool = False
    lengths: int = 0


@dataclass(frozen=True, kw_only=True)
class AlignmentTargets(TargetRange):
    """The targets of a call of ``ctc_loss``: ``low`` and ``high`` of the letters that count, which are ``valid``.

    Attributes:
        blank: the class that stands for no letter. blanks: how often it is a letter.
        ending: how many of these stand in a run to the end of a target, as padding does.
        samples: number of targets. too_long: how many of them need more steps than their input has.
        steps: length of the axis of time, ``longest``: largest input length.
        zero_infinity: does an impossible sample count as 0?
    """

    blank: int = 0
    blanks: int = 0
    ending: int = 0
    samples: int = 0
    too_long: int = 0
    steps: int = 0
    longest: int = 0
    zero_infinity: bool = False
