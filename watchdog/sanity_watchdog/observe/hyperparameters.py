"""Reads what the optimizers were told. Host only."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import ASGD, SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..evidence.hyperparameters import Group, Hyperparameters
from .curves import provable, shape
from .moment import Moment
from .observer import Observer, in_samples
from .run import Run

CRITERIA = {
    "NllLoss": "cross_entropy",
    "NllLoss2D": "cross_entropy",
    "CrossEntropyLoss": "cross_entropy",
    "BinaryCrossEntropy": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits",
    "MseLoss": "mse_loss",
    "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "CtcLoss": "ctc_loss",
}
"""Nodes of the graph whose value is an error: never below zero, and the smaller the better."""
SCALING = ("Mul", "Div", "Add", "Mean", "Sum", "ToCopy", "View")
"""Nodes between such a value and the loss that leave its sign alone, where the loss is positive."""
NODES = 32
"""Nodes looked at."""


class HyperparameterObserver(Observer):
    """Looks at the groups before the first step, and again where a schedule has changed them."""

    codes = ("WD318",)

    def __init__(self) -> None:
        self._run: Run | None = None
        self._climbed = ""
        self._factors: dict[int, float | None] = {}
        self._told: Hyperparameters | None = None

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._factors = {s.optimizer: _factor(s.scheduler) for s in run.schedules}
        self._tell(at)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        """In the first step: is the loss that a maximizing optimizer climbs a known one?"""
        run = self._run
        if run is None or self._climbed or not (run.automatic and at.sync):
            return
        climbing = any(group.get("maximize") for o in run.optimizers for group in o.param_groups)
        if climbing and float(loss.detach()) > 0:
            self._climbed = _criterion(loss)
            self._tell(at)

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._tell(at)

    def _tell(self, at: Moment) -> None:
        run = self._run
        if run is None:
            return
        groups = tuple(
            _group(i, k, optimizer, group, self._factors.get(i))
            for i, optimizer in enumerate(run.optimizers)
            for k, group in enumerate(optimizer.param_groups)
        )
        seen = Hyperparameters(**at.tags(), groups=groups, climbed=self._climbed)
        if self._told is None or (seen.groups, seen.climbed) != (self._told.groups, self._told.climbed):
            self._told = seen
            at.emit(seen)


def _factor(scheduler: Any) -> float | None:
    """The highest value of its functions, where it is a ``LambdaLR`` whose code may be evaluated."""
    functions = scheduler.lr_lambdas if isinstance(scheduler, LambdaLR) else ()
    shapes = [shape(f, scheduler.last_epoch) if provable(f) else None for f in functions]
    known = [s.highest for s in shapes if s is not None]
    return max(known) if known and len(known) == len(shapes) else None


def _group(number: int, index: int, optimizer: Optimizer, group: Mapping[str, Any], factor: float | None) -> Group:
    kind = type(optimizer).__name__
    lr = _number(group, "lr")
    initial = _number(group, "initial_lr")
    betas = group.get("betas")
    return Group(
        optimizer=number,
        index=index,
        kind=kind,
        parameters=len(group["params"]),
        lr=lr,
        peak=lr if initial is None else initial if lr is None else max(lr, initial),
        weight_decay=_number(group, "weight_decay"),
        decoupled=_decouples(kind, group),
        betas=tuple(map(float, betas)) if isinstance(betas, (tuple, list)) and not _on_device(betas) else (),
        momentum=_number(group, "momentum"),
        dampening=_number(group, "dampening"),
        eps=_number(group, "eps"),
        maximize=bool(group.get("maximize", False)),
        factor=factor,
    )


def _criterion(loss: Tensor) -> str:
    """The known loss function that ``loss`` is a multiple of, or a sum with; empty for none."""
    todo = [loss.grad_fn]
    for _ in range(NODES):
        node = todo.pop() if todo else None
        if node is None:
            continue
        kind = node.name().removesuffix("0").removesuffix("Backward")
        if kind in CRITERIA:
            return CRITERIA[kind]
        if kind in SCALING:
            todo += [following for following, _ in node.next_functions]
    return ""


def _on_device(values: Any) -> bool:
    return any(isinstance(v, Tensor) and v.device.type != "cpu" for v in values)


def _number(group: Mapping[str, Any], key: str) -> float | None:
    """A setting as a plain number; None where there is none, or reading it would wait for a device."""
    value = group.get(key)
    if isinstance(value, Tensor):
        return None if value.device.type != "cpu" or value.numel() != 1 else float(value)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def decay_of(optimizer: Optimizer) -> float:
    """Largest product of learning rate and weight decay: the share that a step takes of a weight without a gradient.

    Infinite where the decay passes through an adaptive optimizer, NaN where it cannot be told.
    """
    if not type(optimizer).__module__.startswith("torch.optim"):
        return math.nan
    found = 0.0
    for group in optimizer.param_groups:
        rate, decay = _number(group, "lr"), _number(group, "weight_decay") if "weight_decay" in group else 0.0
        if rate is None or decay is None:
            return math.nan
        coupled = decay > 0 and not _decouples(type(optimizer).__name__, group)
        found = max(found, math.inf if coupled else rate * decay)
    return found


def _decouples(kind: str, group: Mapping[str, Any]) -> bool:
    return bool(group.get("decoupled_weight_decay", kind in ("AdamW", "Lion", "SGD")))


def rate_that_scales(optimizers: Iterable[Optimizer]) -> float:
    """Largest learning rate of the optimizers whose steps grow with the loss; NaN where there are none."""
    groups = [g for o in optimizers if isinstance(o, (SGD, ASGD)) for g in o.param_groups]
    rates = [
        float(g.get(key, 0.0)) for g in groups for key in ("lr", "initial_lr") if not isinstance(g.get(key), Tensor)
    ]
    return max(rates, default=math.nan)


def minimises(optimizers: Sequence[Optimizer]) -> bool:
    """Is there one optimizer at most, none of whose groups maximises? Several may play against each other."""
    return len(optimizers) < 2 and not any(g.get("maximize") for o in optimizers for g in o.param_groups)
