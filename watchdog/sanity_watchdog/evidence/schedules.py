"""Learning rates and the schedules that set them."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Rates:
    """One optimizer's learning rate so far.

    Attributes:
        index: which optimizer.
        rate: largest rate of its groups at the last attempt.
        largest: largest rate at any attempt.
        zeros: attempts in a row, up to the last one, at which every group's rate was 0, or next to it.
        attempts: attempts so far.
        schedule: class of the schedule that drives it; empty where none does.
        patience: attempts between two advances of that schedule; 1 where none.
        interval: ``step`` or ``epoch``; empty where there is no schedule.
    """

    index: int
    rate: float
    largest: float
    zeros: int
    attempts: int
    schedule: str = ""
    patience: float = 1.0
    interval: str = ""


@dataclass(frozen=True, kw_only=True)
class LearningRates(Evidence):
    """Learning rates of all optimizers.

    Attributes:
        optimizers: one entry each, for those that have attempted a step.
        count: optimizers of the run.
        ended: the fit is over.
    """

    optimizers: tuple[Rates, ...]
    count: int
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a schedule was written for, and what it gets.

    Attributes:
        schedule: its class.
        interval: ``step`` or ``epoch``, as the loop uses it.
        advances: times that the loop advances it in the planned run; ``inf`` where no end is set.
        steps: optimizer steps of the planned run; ``inf`` where no end is set.
        epochs: the limit of epochs that the Trainer was given; NaN where none was.
        batches: its training batches, more than steps where gradients are accumulated; NaN where no end is set.
        warmup: advances until its highest rate; None where it has no warm-up or it cannot be read.
        length: advances until its end; None where it has none or it cannot be read.
        strict: it cannot be advanced beyond ``length`` and is made for single steps.
        start: rate now over its highest.
        turns: does a cosine of it end with the limit of epochs, and go on beyond?
        part: class of what makes the rate fall: the schedule itself or a part of it.
        decay: advances until its last milestone, between two decays of equal distance, or until next to nothing is
            left; None where there is no such.
        left: share of the rate that it leaves at the end of the planned run.
        literal: does its number stand as such in the source of ``configure_optimizers``, not computed from the run?
        limited: do the run's epochs end before their data do?
        misplaced: keys of the schedule's configuration that were written beside ``lr_scheduler``.
        where: the user's ``file:line``.
    """

    schedule: str
    interval: str
    advances: float
    steps: float
    epochs: float = math.nan
    batches: float = math.nan
    warmup: int | None = None
    length: int | None = None
    strict: bool = False
    start: float = 1.0
    turns: bool = False
    part: str = ""
    decay: int | None = None
    left: float = 1.0
    literal: bool = False
    limited: bool = False
    misplaced: tuple[str, ...] = ()
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class SchedulePlans(Evidence):
    """The plans of all schedules, before the first step."""

    plans: tuple[Plan, ...]


@dataclass(frozen=True, kw_only=True)
class Followed:
    """One schedule against the rate that its optimizer really used.

    Attributes:
        index: which optimizer.
        schedule: class of the schedule.
        wanted: the rate that the schedule last set.
        used: the rates that the optimizer stepped with while they differed, at most eight.
        advances: times that the schedule was advanced meanwhile; where there are others, that what it sets has changed.
        apart: attempts in a row, up to the last one, at which the two differed.
        others: does another schedule drive the optimizer as well?
    """

    index: int
    schedule: str
    wanted: float
    used: tuple[float, ...]
    advances: int
    apart: int
    others: bool = False


@dataclass(frozen=True, kw_only=True)
class SchedulesFollowed(Evidence):
    """Schedules beside what their optimizers did.

    Attributes:
        schedules: one entry each.
        idle: classes of the schedules that the user has to advance by hand and never did in the whole fit.
        epochs, steps: those that this fit has begun.
    """

    schedules: tuple[Followed, ...]
    idle: tuple[str, ...] = ()
    epochs: int = 0
    steps: int = 0
