"""Errors written by hand whose outputs end in an activation: what these can reach, and the targets that they get."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..evidence.losses import DistanceLoss, Origin
from .bounded import Numbers
from .calls import Marks
from .distances import squares
from .facts import TensorFacts
from .first_loss import FirstLossObserver
from .loss_statistics import distance
from .moment import Moment
from .observer import is_plain
from .operation import Operation
from .operations import FACTORS, NORMS, REDUCES, RESHAPES, SUBTRACTS
from .site import user_line

KEEPS = RESHAPES | FACTORS | {"add", "sqrt"}
"""What an error goes through on its way to a mean, with numbers alone."""
MOST = 4
"""Errors of a step."""


@dataclass(eq=False)
class Error:
    """Outputs that ``origin`` has made minus targets, at ``where``; its ``function`` once it is a distance."""

    origin: Origin
    where: str
    shape: tuple[int, ...]
    numbers: Numbers = field(default_factory=dict)
    function: str = ""


class Errors:
    """Follows differences through one step. Told are those whose distance is averaged as it is: no mask may go in."""

    def __init__(self, facts: TensorFacts) -> None:
        self.found: list[Error] = []
        self._facts = facts
        self._errors: Marks[Error] = Marks()

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        if not op.out.requires_grad or op.is_weighed:
            return
        error = next((e for t in op.inputs if (e := self._errors.get(t)) is not None), None)
        if error is None:
            if op.name in SUBTRACTS and len(op.inputs) == 2 and len(self.found) < MOST:
                self._begin(op)
        elif not error.function:
            if op.name == "abs" or op.name in NORMS or squares(op):
                error.function = "squared error" if squares(op) else "absolute error"
                self._errors.put(op.out, error)
                if op.out.numel() == 1:
                    self.found.append(error)
            elif op.name in RESHAPES:
                self._errors.put(op.out, error)
        elif op.name in REDUCES:
            if error not in self.found:
                self.found.append(error)
        elif op.name in KEEPS and all(t.numel() == 1 or self._errors.get(t) is error for t in op.inputs):
            self._errors.put(op.out, error)

    def _begin(self, op: Operation) -> None:
        made, given = op.inputs if op.inputs[0].requires_grad else op.inputs[::-1]
        origin = self._facts.of(made).origin
        if origin is None or made.shape != given.shape or not made.numel() or not self._facts.is_given(given):
            return
        if is_plain(made) and is_plain(given) and given.is_floating_point():
            with torch.no_grad():
                numbers = distance(made.detach(), given.detach())
            self._errors.put(op.out, Error(origin, user_line(), tuple(made.shape), numbers))


class ErrorsWatch(FirstLossObserver):
    """What the first step has shown."""

    codes = ("WD107",)

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        followers = at.trace.followers if at.trace is not None else None
        for error in followers.errors.found if followers is not None else ():
            self._ask(at, error)

    def _ask(self, at: Moment, error: Error) -> None:
        tags, names, shape = at.tags(), tuple(error.numbers), error.shape

        def read(arrived: Mapping[str, Tensor]) -> list[DistanceLoss]:
            values: dict[str, Any] = dict(zip(names, arrived["numbers"].tolist(), strict=True))
            low, high = values.pop("label_low"), values.pop("label_high")
            return [
                DistanceLoss(
                    function=error.function,
                    where=error.where,
                    shape=shape,
                    target_shape=shape,
                    origin=error.origin,
                    target_low=low,
                    target_high=high,
                    **values,
                    **tags,
                )
            ]

        at.ask({"numbers": torch.stack([n.float() for n in error.numbers.values()])}, read)
