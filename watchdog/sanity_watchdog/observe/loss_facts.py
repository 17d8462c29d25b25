"""What is known of a loss call without its tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..evidence.losses import Origin
from . import alignments
from .axes import crossed, repeated
from .bounded import class_axis
from .calls import LossCall
from .hyperparameters import minimises, rate_that_scales
from .loss_kinds import KINDS, LABELS
from .objective import enters_as_sum, may_be_weighed
from .run import Run

FACTOR = 1e-3
"""Relative; two float32 results of the same numbers differ by less."""
Values = Mapping[str, float]
Tags = Mapping[str, Any]


@dataclass
class Facts:
    """What is known of a loss call without its tensors; see ``LossSeen`` and ``FirstLoss``. ``weighed``: by a mask?"""

    function: str
    kind: str
    where: str = ""
    error: str = ""
    shape: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()
    dtype: str = "float32"
    target_dtype: str = ""
    soft: bool = False
    axis: int = 1
    reduction: str = "mean"
    smoothing: float = 0.0
    ignore_index: int | None = None
    log_target: bool = False
    origin: Origin | None = None
    followed: bool = False
    logs: bool = False
    cosine: bool = False
    first: bool = False
    as_sum: bool = False
    rate: float = math.nan
    clipped: bool = False
    minimises: bool = True
    head: str = ""
    whole_samples: bool = False
    weighed: bool = False
    crossed: bool = False
    flipped: bool = False
    raw: bool = False
    repeated: bool = False
    resumed: bool = False
    alignment: alignments.Options | None = None
    given: tuple[int | None, float | None] = field(default=(None, None))

    @classmethod
    def of(cls, call: LossCall, objective: Tensor | None, **more: Any) -> "Facts":
        """The facts of a call in a step that minimises ``objective``, while its tensors still live."""
        scores, target, options = call.input, call.target, call.arguments
        facts = cls(call.name, KINDS.get(call.name, "other"), call.where, call.error, **more)
        if isinstance(scores, Tensor):
            facts.shape, facts.dtype = tuple(scores.shape), str(scores.dtype).removeprefix("torch.")
            facts.axis = scores.ndim - 1 if call.name == "linear_cross_entropy" else class_axis(scores)
        if isinstance(target, Tensor):
            facts.target_shape, facts.target_dtype = tuple(target.shape), str(target.dtype).removeprefix("torch.")
            facts.soft = target.dtype not in LABELS
        facts.reduction = str(options.get("reduction", "mean"))
        facts.smoothing = float(options.get("label_smoothing", 0.0))
        if facts.kind == "softmax":
            ignore = options.get("ignore_index")
            facts.ignore_index = -100 if ignore is None else int(ignore)
            if not facts.soft:
                facts.crossed, facts.repeated = crossed(call, facts.axis), repeated(call, facts.axis)
        facts.as_sum, facts.weighed = bool(enters_as_sum(objective, call.value)), may_be_weighed(objective, call.value)
        facts.alignment = alignments.Options.of(call)
        facts.log_target = bool(options.get("log_target"))
        facts.origin, facts.followed, facts.logs, facts.cosine = call.origin, call.followed, call.logs, call.cosine
        facts.flipped, facts.raw = call.flipped, call.head is not None and call.origin is None
        return facts

    def negated(self, values: Values) -> bool:
        """Is the step's loss minus this call's value, for an optimizer that minimises?"""
        return self.flipped or (self.minimises and abs(factor_of(values) + 1) < FACTOR)


def of_run(run: Run) -> dict[str, Any]:
    """Facts that are the same for all calls."""
    return {
        "rate": rate_that_scales(run.optimizers),
        "clipped": run.clip is not None and run.clip[1] == "norm",
        "minimises": minimises(run.optimizers),
        "resumed": run.resumed,
    }


def factor_of(values: Values) -> float:
    """What the step's loss is times the value of its only loss call; NaN where there are several."""
    value = values.get("value", math.nan)
    return values.get("objective", math.nan) / value if value else math.nan
