"""Learning rates and schedules: zero rates, schedules that count epochs, rates that somebody overwrites."""

import math

from ..alerts import Severity, Value, number
from ..evidence.schedules import LearningRates, Plan, Rates, SchedulePlans, SchedulesFollowed
from .check import Findings, check

ZEROS_SCHEDULED = 8
"""Attempts in a row at rate 0 before a scheduled rate counts as zero: a warm-up from zero has one of them per advance
of its schedule, and several optimizers or micro-batches make a few."""
ZEROS_CONSTANT = 3
"""The same where no schedule could raise it; a rate set by hand in a hook may start at 0 for a step or two."""
FEWEST = 2
"""Attempts of a whole fit at rate 0 that are judged at its end."""

WARMUP_STEPS = 100
"""Advances of a warm-up from which it is meant in steps: published warm-ups by epochs have 5 to 40 of them."""
WARMUP_SHARE = 0.3
"""Share of a run's advances that a warm-up by epochs may take; published ones take 1 to 10 %."""
LOW_START = 0.1
"""Rate at the start of a warm-up over its highest, up to which standing still there stops the learning."""
LONGER = 3.0
"""A schedule at least this many times longer than its advances in the run, and as long as the run in steps, was
planned in steps. A shortened trial run of a schedule by epochs does not hit the run's number of steps by chance."""
SAME = 0.05
"""Relative difference between a schedule's length and the run's steps that counts as equal; rounding of the last
accumulation of each epoch makes up to 1 / batches."""
MANY = 1000
"""Longest schedule that people plan in epochs, nearly always."""
STRICT_LONGER = 1.5
"""The same ratio for a schedule that ends with an error and is made for steps (OneCycleLR)."""

BY_FACTORS = ("ExponentialLR", "StepLR", "MultiStepLR")
PERIODS = 8
"""Times that a cosine as long as the Trainer's epochs goes down and up in a run from which on it counts epochs."""
DISTANCES = {"MultiStepLR": "last milestone", "StepLR": "step_size"}
SMOOTH = 2
"""Times the epochs within which a smooth decay by epochs is next to nothing: plans end at a hundredth or less."""
LEFT, NOTHING_LEFT = 0.2, 1e-4
"""Share of the rate that milestones leave which all lie at the very beginning, and that decays of equal distance leave
at the end of a run, from which on they count epochs."""
ADVANCES = 3
"""Advances of a schedule after which its being overruled is certain."""
IDLE_EPOCHS, IDLE_STEPS = 2, 32
"""Whole fits at least that long show that nobody advances a schedule in manual optimisation."""
APART = 32
"""Attempts at which the rate was another one than the schedule's."""


@check("WD501", "zero-learning-rate", Severity.ERROR, LearningRates, implied_by=("WD502",))
def zero_learning_rate(seen: LearningRates, *, patience: int = ZEROS_SCHEDULED) -> Findings:
    """The learning rate is zero for more than a moment, so nothing is learned.

    **What it sees.** The rate of every parameter group at every optimizer step. An alert needs all groups of an
    optimizer at 0 (or at 10⁻¹² of the largest rate so far; 10⁻⁷ where factors decay it at each step) for ``patience``
    steps in a row (3 where no schedule drives the rate), or for a whole fit of at least two steps. A rate that was
    positive before, or one of several optimizers, is a WARNING.

    **Why it matters.** The run looks alive: losses are logged, batches go by, and no weight moves.

    **How to fix.** Give the rate as a float, and let a warm-up that is written for steps advance at each step::

        # before
        lr = int(config["lr"])                                      # int("1e-3" as a number) is 0
        return [optimizer], [LambdaLR(optimizer, lambda s: s / 500)]  # advances once per epoch
        # after
        lr = float(config["lr"])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    **When to ignore.** Where an optimizer is meant to wait, such as a discriminator that joins later.

    **Limits.** A rate that is tiny but not zero is ``barely-moving``. A rate held in a device tensor is not looked at.

    **Sources.** Humbatova et al., Taxonomy of Real Faults in Deep Learning Systems (2020): suboptimal learning rate.
    Lightning's ``configure_optimizers``: ``interval`` is ``"epoch"`` unless given.
    """
    for rates in seen.optimizers:
        limit = max(patience, 2 * rates.patience) if rates.schedule and rates.interval == "step" else patience
        limit = limit if rates.schedule else min(limit, ZEROS_CONSTANT)
        whole = seen.ended and rates.zeros == rates.attempts >= FEWEST
        if rates.zeros < limit and not whole:
            continue
        decayed = rates.zeros < rates.attempts and rates.largest > 0
        evidence: dict[str, Value] = {"zeros": rates.zeros, "attempts": rates.attempts, "largest": rates.largest}
        if rates.schedule:
            evidence |= {"schedule": rates.schedule, "interval": rates.interval}
        certain = not decayed and len(seen.optimizers) == 1 == seen.count
        yield zero_learning_rate.alert(
            seen,
            _zero_message(rates, decayed),
            hint=_zero_hint(rates, decayed),
            subjects=(f"optimizer {rates.index}",) if seen.count > 1 else (),
            severity=Severity.ERROR if certain else Severity.WARNING,
            evidence=evidence,
        )


def _zero_message(rates: Rates, decayed: bool) -> str:
    if decayed:
        rate, largest = number(rates.rate), number(rates.largest)
        return f"learning rate is {rate} in the last {rates.zeros} steps; its largest was {largest}"
    return f"learning rate is 0 in all of the first {rates.zeros} optimizer steps; nothing can move"


def _zero_hint(rates: Rates, decayed: bool) -> str:
    if decayed and rates.interval == "step" and rates.schedule in BY_FACTORS:
        return (
            f'{rates.schedule} decays at every step: if it counts epochs, "interval": "epoch", or by hand once in each'
        )
    if decayed:
        unit = ' in steps, or give "interval": "epoch"' if rates.interval == "step" and rates.schedule else ""
        return f"end training where {rates.schedule or 'the rate'} reaches 0, or plan it for the whole run{unit}"
    if rates.interval == "epoch":
        return f'{rates.schedule} advances once per epoch: start above 0, or put "interval": "step" inside the dict'
    if rates.schedule:
        return f"look at what {rates.schedule} computes for its first steps"
    return "give the optimizer a positive lr; look for an integer or a wrong unit in the configuration"


@check("WD502", "schedule-counts-epochs", Severity.ERROR, SchedulePlans)
def schedule_counts_epochs(seen: SchedulePlans) -> Findings:
    """A learning-rate schedule was planned in steps and advances once per epoch.

    **What it sees.** Before the first step: how long each schedule's warm-up and whole course are (read from the
    scheduler's own numbers; the function of a ``LambdaLR`` is evaluated only where its code proves it has no side
    effects), how often this run will advance it, and, in the source of ``configure_optimizers``, an ``"interval"``
    that stands beside ``"lr_scheduler"`` instead of inside it. As a WARNING the other way round, a schedule by epochs
    that advances at every step: a cosine over the Trainer's number of epochs, or milestones and decays within about
    that number which use up the learning rate in the first eighth of the run; also as a part of a ``SequentialLR`` or
    ``ChainedScheduler``.

    **Why it matters.** Lightning advances a schedule once per epoch unless told otherwise. A warm-up of 4,000 steps
    then never gets anywhere: the learning rate stays near 0.

    **How to fix.** ::

        # before: the key beside lr_scheduler is not read
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "interval": "step"}
        # after
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    **When to ignore.** Where a very slow schedule by epochs is meant.

    **Limits.** Functions with side effects or foreign objects in them are not evaluated. A schedule by epochs that is
    cut short, as in a trial run, stays quiet unless its length is the run's number of steps or batches; where that is
    a number below 1,000 in the source, it is a WARNING, and nothing where the epochs are cut short as well. A cosine
    over a number of steps in the source that happens to be the Trainer's epochs, and takes whole epochs, is left alone.

    **Sources.** Lightning's ``LRSchedulerConfig``: ``interval="epoch"``. Warm-ups by epochs: Goyal et al. 2017 (5 of
    90), Dosovitskiy et al. 2021, He et al. 2022 (40 of 800).
    """
    for plan in seen.plans:
        swings = _swings(plan) or _rushes(plan)
        beside = _misplaced(plan)
        message = beside or _counts_epochs(plan) or swings
        perhaps = plan.literal and not beside and plan.length is not None and plan.length < MANY
        if message:
            yield schedule_counts_epochs.alert(
                seen,
                message,
                severity=Severity.WARNING if swings or perhaps else None,
                hint='give "interval": "epoch", or numbers in steps: trainer.estimated_stepping_batches'
                if swings
                else 'return {"optimizer": …, "lr_scheduler": {"scheduler": …, "interval": "step"}}',
                subjects=(plan.schedule,) if len(seen.plans) > 1 else (),
                where=plan.where,
                evidence={
                    "schedule": plan.schedule,
                    "interval": plan.interval,
                    "warmup": plan.warmup,
                    "length": plan.length,
                    "advances": plan.advances,
                    "steps": plan.steps,
                    "start": plan.start,
                },
            )


def _misplaced(plan: Plan) -> str:
    if "interval" in plan.misplaced and plan.interval == "epoch":
        return f'"interval" beside "lr_scheduler" is not read: the schedule advances per epoch, {_times(plan)}'
    return ""


def _swings(plan: Plan) -> str:
    """The other way round: a cosine over the Trainer's epochs advances at every step."""
    if not plan.turns or plan.interval != "step" or not PERIODS * plan.epochs <= plan.advances < math.inf:
        return ""
    periods = plan.advances / plan.epochs
    if plan.literal and periods <= plan.epochs:  # each takes whole epochs: cycles of so many steps may be meant
        return ""
    return f"a cosine over the {plan.epochs:.0f} epochs advances per step: {periods:.0f} half periods"


def _rushes(plan: Plan) -> str:
    """Likewise milestones and decays within the Trainer's epochs, which the first steps go by."""
    if plan.decay is None or plan.interval != "step" or not PERIODS * plan.decay <= plan.advances < math.inf:
        return ""
    smooth = plan.part not in DISTANCES
    limit = LEFT if plan.part == "MultiStepLR" else NOTHING_LEFT
    if not plan.decay <= (SMOOTH if smooth else 1) * plan.epochs or not plan.left <= limit:
        return ""
    left = f"it advances per step: {number(plan.left)} of the rate left"
    if smooth:
        return f"{plan.part} uses up the rate in {plan.decay} advances, and {left}"
    return f"{DISTANCES[plan.part]} {plan.decay} lies within the epochs, but {left}"


def _times(plan: Plan) -> str:
    return "in an endless run" if plan.advances == math.inf else f"{plan.advances:,.0f} times in this run"


def _counts_epochs(plan: Plan) -> str:
    if plan.interval != "epoch" or plan.steps <= plan.advances < math.inf:  # one step an epoch: both are the same
        return ""
    endless = plan.advances == math.inf
    if plan.warmup is not None and plan.start <= LOW_START:
        needed = 10 * WARMUP_STEPS if endless else max(WARMUP_STEPS, WARMUP_SHARE * plan.advances)
        if plan.warmup + 1 >= needed:  # a rise from 1/n is at its top in its n-th step
            return f"warm-up of {plan.warmup:,} steps, but it advances once per epoch: {_times(plan)}"
    if plan.length is None or endless:
        return ""
    if plan.strict and plan.length >= max(STRICT_LONGER * plan.advances, (1 - SAME) * plan.steps):
        pass  # in steps it would last for this run
    elif not plan.length >= LONGER * max(plan.advances, 1) or not _as_long(plan, plan.length) or _by_chance(plan):
        return ""
    return f"planned for {plan.length:,} steps, but it advances once per epoch: {_times(plan)}"


def _as_long(plan: Plan, length: int) -> bool:
    """Is it as long as the run in steps? Short ones to the step, or to the step in each epoch: they may be epochs."""
    nearly = [n for n in (plan.steps, plan.batches) if abs(length - n) <= max(SAME * n, 1)]
    whole = plan.advances >= 1 and length % plan.advances == 0
    return any(length >= MANY or whole or abs(length - n) <= 1 for n in nearly)


def _by_chance(plan: Plan) -> bool:
    """Is it a number of epochs that somebody has written down, in a run that somebody has cut short?"""
    return plan.literal and plan.limited and plan.length is not None and plan.length < MANY


@check("WD503", "overwritten-learning-rate", Severity.WARNING, SchedulesFollowed)
def overwritten_learning_rate(seen: SchedulesFollowed) -> Findings:
    """A schedule sets learning rates that the optimizer never uses.

    **What it sees.** At each optimizer step, the rate that each of the optimizer's schedules last set and the rate that
    is used. An alert needs a rate that stands still while the schedule has moved at least three times (one of several:
    while what it sets has changed as often), and 32 steps in a row at which the two differ. In manual optimisation also
    a schedule that nobody advanced in a whole fit of at least 32 steps that reached its second epoch.

    **Why it matters.** The schedule looks active in the configuration and in the logs of a learning-rate monitor that
    asks the schedule, and has no effect.

    **How to fix.** Set the rate in one place: drop the assignment to ``group["lr"]``, or drop the schedule::

        self.optimizers().param_groups[0]["lr"] = 1e-3    # before: in a hook, beside a schedule
        return [optimizer], [scheduler]                   # after: the schedule alone

    **When to ignore.** Where the schedule is kept for its own sake.

    **Limits.** Rates that move are never accused: a warm-up by hand beside a schedule by epochs is common. A
    ``ReduceLROnPlateau`` may wait for its metric.

    **Sources.** ``LRScheduler.get_last_lr`` against ``param_groups[i]["lr"]``; pytorch#20124 on chained schedules.
    """
    for one in seen.schedules:
        if one.apart >= APART and one.advances >= ADVANCES and len(one.used) == 1:
            yield overwritten_learning_rate.alert(
                seen,
                f"{one.schedule} set {number(one.wanted)}, but the rate stays at {number(one.used[-1])}",
                hint="another schedule sets it anew each time: join them by SequentialLR or ChainedScheduler"
                if one.others
                else 'remove the code that assigns group["lr"], or the schedule',
                subjects=(f"optimizer {one.index}",),
                evidence={"set": one.wanted, "used": one.used[-1], "steps": one.apart},
            )
    if seen.idle and seen.epochs >= IDLE_EPOCHS and seen.steps >= IDLE_STEPS:
        yield overwritten_learning_rate.alert(
            seen,
            f"{seen.idle[0]} was never advanced in {seen.epochs} epochs of manual optimisation",
            hint="call self.lr_schedulers().step() where it is due, or drop the schedule",
            evidence={"idle": len(seen.idle), "epochs": seen.epochs, "steps": seen.steps},
        )
