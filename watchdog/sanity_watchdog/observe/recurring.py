"""Recurrent layers that take the samples of the batch for the steps of a sequence, behind other layers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import layout
from .calls import Marks
from .operation import Operation
from .operations import CONVOLUTIONS, RECURRENT

ROW_BY_ROW = CONVOLUTIONS | frozenset((
    "linear", "batch_norm", "instance_norm", "group_norm", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d",
))  # fmt: skip
"""Functions that leave what lies along the first axis where it is."""
FEWEST = 4
"""Samples below which an axis says little."""


class Recurring:
    """Follows where the samples of the batch lie, through layers; so many ``samples``.

    Attributes:
        over_samples: the recurrent function whose steps are the samples, and whose batch is something else.
    """

    def __init__(self, samples: int) -> None:
        self.over_samples = ""
        self._samples, self._numbers = samples, layout.numbered(samples, 0, 1)
        self._rows: Marks[Tensor] = Marks()

    def follow(self, op: Operation, known: Sequence[Tensor | None]) -> None:
        """One operation has run; ``known``: layouts of the samples in those of its inputs that no layer has made."""
        name, inputs, out = op.name, op.inputs, op.out
        if not inputs:
            return
        rows = [k if k is not None else self._rows.get(t) for t, k in zip(inputs, known, strict=True)]
        first = rows[0]
        if first is None:
            return
        if name in RECURRENT:
            self._enter(op, first)
            return
        found: Tensor | None = None
        if name in ROW_BY_ROW:
            leading = _leading(first)
            same = leading is not None and len(out) == len(inputs[0]) == len(leading)
            found = leading.reshape(-1, *[1] * (out.ndim - 1)) if same and leading is not None else None
        else:
            found = layout.after(op, rows)
        if found is not None and found.ndim == out.ndim:
            self._rows.put(out, found)

    def _enter(self, op: Operation, rows: Tensor) -> None:
        args, given = op.args, op.inputs[0]
        batch_first = args[-1] if args else None
        leading = _leading(rows) if rows.ndim == given.ndim == 3 else None
        alone = leading is not None and FEWEST <= self._samples == len(given) and torch.equal(leading, self._numbers)
        if batch_first is False and alone and given.shape[1] > 1 and len(args) > 7:
            packed = isinstance(args[1], Tensor) and not args[1].is_floating_point()
            self.over_samples = self.over_samples or ("" if packed else op.name)


def _leading(rows: Tensor) -> Tensor | None:
    """The numbers along the first axis, where they change along no other."""
    if not rows.numel():
        return None
    leading = rows.reshape(len(rows), -1)[:, :1]
    return leading[:, 0] if torch.equal(rows.reshape(len(rows), -1), leading.expand(-1, rows[0].numel())) else None
