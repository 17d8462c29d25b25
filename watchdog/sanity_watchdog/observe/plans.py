"""What a learning-rate schedule was written for, read from the scheduler without advancing it."""

import ast
import functools
import inspect
import math
import textwrap
from dataclasses import dataclass
from typing import Any

from torch.optim import lr_scheduler as lrs

from ..evidence.schedules import Plan
from .curves import FLAT, provable, shape, turns
from .run import Run, Schedule
from .site import line_of_code

INSIDE = ("interval", "frequency", "strict", "name")
"""Keys that belong inside ``lr_scheduler``."""
LEAST = 0.01
"""Factor of a decay as people mean it."""


@dataclass(frozen=True)
class Source:
    """What the source of ``configure_optimizers`` says.

    Attributes:
        misplaced: keys of a schedule's configuration that stand beside ``lr_scheduler``.
        numbers: the whole numbers in it.
        where: the user's line.
    """

    misplaced: tuple[str, ...] = ()
    numbers: frozenset[int] = frozenset()
    where: str = ""


def horizon(run: Run) -> tuple[float, float]:
    """Epochs and optimizer steps of the planned run, ``inf`` where no end is set."""
    per_epoch = math.inf
    if math.isfinite(run.batches_per_epoch):
        per_epoch = max(1, math.ceil(run.batches_per_epoch / run.accumulate))
    epochs = float(run.max_epochs) if run.max_epochs >= 0 else math.inf
    steps = epochs * per_epoch if epochs else 0.0
    if run.max_steps >= 0:
        steps = min(steps, run.max_steps)
        epochs = min(epochs, math.ceil(run.max_steps / per_epoch)) if math.isfinite(per_epoch) else epochs
    return epochs, steps


def plan(run: Run, schedule: Schedule, written: Source) -> Plan:
    """One schedule's plan against what the run gives it."""
    epochs, steps = horizon(run)
    advances = (epochs if schedule.interval == "epoch" else steps) // max(schedule.frequency, 1)
    advances = advances if not math.isnan(advances) else math.inf
    warmup, length, start = course(schedule.scheduler)
    part, decay, left = falls(schedule.scheduler, advances)
    return Plan(
        schedule=type(schedule.scheduler).__name__,
        interval=schedule.interval,
        advances=advances,
        steps=steps,
        epochs=float(run.max_epochs) if run.max_epochs > 0 else math.nan,
        batches=epochs * run.batches_per_epoch if math.isfinite(epochs) else math.nan,
        warmup=warmup,
        length=length,
        strict=isinstance(schedule.scheduler, lrs.OneCycleLR),
        start=start,
        turns=_turns(schedule.scheduler, run.max_epochs),
        part=part,
        decay=decay,
        left=left,
        literal=bool({length, decay, run.max_epochs} & written.numbers),
        limited=_limited(run),
        misplaced=written.misplaced,
        where=written.where,
    )


def _limited(run: Run) -> bool:
    """Does an epoch end before its only loader does?"""
    try:
        return len(run.loaders) == 1 and len(run.loaders[0]) > run.batches_per_epoch
    except Exception:  # noqa: BLE001
        return False


def course(scheduler: Any) -> tuple[int | None, int | None, float]:
    """Advances until the highest rate, advances until the end, and the rate now over the highest."""
    if isinstance(scheduler, lrs.OneCycleLR):
        group = scheduler.optimizer.param_groups[0]
        start = group["initial_lr"] / group["max_lr"] if group.get("max_lr") else 1.0
        first = getattr(scheduler, "_schedule_phases", [{}])[0].get("end_step")
        return None if first is None else round(first), scheduler.total_steps, float(start)
    if isinstance(scheduler, lrs.LinearLR):
        low, high = scheduler.start_factor, scheduler.end_factor
        if low < high:
            reached = scheduler.last_epoch >= scheduler.total_iters
            return scheduler.total_iters, None, 1.0 if reached else float(low / high)
        return None, scheduler.total_iters, 1.0
    if isinstance(scheduler, (lrs.CosineAnnealingLR, lrs.CosineAnnealingWarmRestarts)):
        length = scheduler.T_max if isinstance(scheduler, lrs.CosineAnnealingLR) else scheduler.T_0
        return None, int(length), 1.0
    if isinstance(scheduler, lrs.PolynomialLR):
        return None, scheduler.total_iters, 1.0
    if isinstance(scheduler, lrs.SequentialLR):
        return _sequence(scheduler)
    if isinstance(scheduler, lrs.ChainedScheduler):
        return _chain(scheduler)
    if isinstance(scheduler, lrs.LambdaLR):
        return _lambda(scheduler)
    return None, None, 1.0


def falls(scheduler: Any, advances: float) -> tuple[str, int | None, float]:
    """The class that makes the rate fall, the advances that it is written for, and the share of the rate that is left
    after so many: until the last milestone, between two decays of equal distance, or until next to nothing is left.

    A single decay that leaves nothing is another fault, whatever the interval.
    """
    kind, nothing = type(scheduler).__name__, ("", None, 1.0)
    if not math.isfinite(advances) or not getattr(scheduler, "gamma", 1.0) >= LEAST:
        return nothing
    if isinstance(scheduler, lrs.SequentialLR) and scheduler._milestones:
        before = scheduler._milestones[-1]
        part, decay, left = falls(scheduler._schedulers[-1], advances - before)
        return part, None if decay is None else before + decay, left
    if isinstance(scheduler, lrs.ChainedScheduler):
        return min((falls(s, advances) for s in scheduler._schedulers), key=lambda fall: fall[2], default=nothing)
    if isinstance(scheduler, lrs.MultiStepLR) and scheduler.milestones:
        times = list(scheduler.milestones.elements())
        return kind, max(times), float(scheduler.gamma) ** sum(time <= advances for time in times)
    if isinstance(scheduler, lrs.StepLR) and scheduler.step_size > 0:
        return kind, scheduler.step_size, float(scheduler.gamma) ** (advances // scheduler.step_size)
    if isinstance(scheduler, lrs.ExponentialLR) and scheduler.gamma < 1:
        return kind, math.ceil(math.log(FLAT) / math.log(scheduler.gamma)), float(scheduler.gamma) ** advances
    if isinstance(scheduler, (lrs.PolynomialLR, lrs.LinearLR)) and scheduler.total_iters <= advances:
        left = scheduler.end_factor / scheduler.start_factor if isinstance(scheduler, lrs.LinearLR) else 0.0
        return kind, scheduler.total_iters, left
    if isinstance(scheduler, lrs.LambdaLR) and provable(scheduler.lr_lambdas[0]):
        found = shape(scheduler.lr_lambdas[0], int(advances))
        return nothing if found is None else (kind, found.length, found.start)
    return nothing


def _turns(scheduler: Any, epochs: int) -> bool:
    """Does it go down and up again like a cosine that was written for so many epochs?"""
    if isinstance(scheduler, lrs.CosineAnnealingLR):
        return bool(scheduler.T_max == epochs)
    if isinstance(scheduler, lrs.SequentialLR) and scheduler._milestones:
        last = scheduler._schedulers[-1]
        return _turns(last, epochs) or _turns(last, epochs - scheduler._milestones[-1])
    if isinstance(scheduler, lrs.ChainedScheduler):
        return any(_turns(part, epochs) for part in scheduler._schedulers)
    if not isinstance(scheduler, lrs.LambdaLR) or not provable(scheduler.lr_lambdas[0]):
        return False
    return turns(scheduler.lr_lambdas[0], epochs)


def _sequence(scheduler: Any) -> tuple[int | None, int | None, float]:
    parts, milestones = scheduler._schedulers, list(scheduler._milestones)
    if not parts or not milestones:
        return None, None, 1.0
    first, last = course(parts[0]), course(parts[-1])
    warmup = None if first[0] is None else min(first[0], milestones[0])
    return warmup, None if last[1] is None else milestones[-1] + last[1], first[2]


def _chain(scheduler: Any) -> tuple[int | None, int | None, float]:
    parts = [course(part) for part in scheduler._schedulers]
    warmups = [warmup for warmup, _, _ in parts if warmup is not None]
    lengths = [length for _, length, _ in parts if length is not None]
    return max(warmups, default=None), max(lengths, default=None), float(math.prod(start for _, _, start in parts))


def _lambda(scheduler: Any) -> tuple[int | None, int | None, float]:
    function = scheduler.lr_lambdas[0]
    found = shape(function, scheduler.last_epoch) if provable(function) else None
    return (None, None, 1.0) if found is None else (found.peak or None, found.length, found.start)


def source(module: Any) -> Source:
    """Read the source of the module's ``configure_optimizers``, where there is one."""
    function = inspect.unwrap(getattr(type(module), "configure_optimizers", len))
    where = line_of_code(function.__code__) if inspect.isfunction(function) else ""
    try:
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
    except (OSError, TypeError, SyntaxError):
        return Source(where=where)
    numbers = frozenset(n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is int)
    for node in nodes:
        keys = _constant_keys(node)
        beside = tuple(k for k in INSIDE if k in keys)
        if "lr_scheduler" in keys and beside and not _says(keys.get("interval"), "epoch"):
            return Source(beside, numbers, where)
    return Source((), numbers, where)


@functools.singledispatch
def _constant_keys(node: ast.AST) -> dict[str, ast.expr]:
    return {}


@_constant_keys.register
def _(node: ast.Dict) -> dict[str, ast.expr]:
    return {str(k.value): v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)}


@_constant_keys.register
def _(node: ast.Call) -> dict[str, ast.expr]:
    named = isinstance(node.func, ast.Name) and node.func.id == "dict"
    return {k.arg: k.value for k in node.keywords if k.arg} if named else {}


def _says(node: ast.expr | None, word: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == word
