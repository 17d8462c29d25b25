"""Class weights by hand: losses of single samples times numbers that were picked from a table by their labels."""

from collections.abc import Callable

import torch
from torch import Tensor

from .calls import Marks, Trace
from .operation import Operation
from .operations import VIEWS

PICKS = ("__getitem__", "gather", "index_select", "take")
MOST = 1000
"""Classes of a table."""


class Picked:
    """Tells the calls of ``trace``; ``is_given``: is a tensor data of the batch that no trained part has made?"""

    def __init__(self, trace: Trace, is_given: Callable[[Tensor], bool]) -> None:
        self._trace = trace
        self._is_given = is_given
        self._tables: Marks[Tensor] = Marks()

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name in PICKS and len(inputs) == 2 and self._is_table(*inputs):
            self._tables.put(out, inputs[0])
        elif name in VIEWS and len(inputs) == 1 and (table := self._tables.get(inputs[0])) is not None:
            self._tables.put(out, table)
        elif name == "mul" and len(inputs) == 2 and self._trace.calls:
            for losses, factors in (inputs, inputs[::-1]):
                table = self._tables.get(factors)
                if table is not None and losses.numel() == factors.numel():
                    for call in self._trace.calls:
                        if call.value is losses:
                            call.weights = table

    def _is_table(self, table: Tensor, labels: Tensor) -> bool:
        numbers = table.ndim == 1 < table.numel() <= MOST and table.is_floating_point() and not table.requires_grad
        whole = not labels.is_floating_point() and labels.dtype != torch.bool
        return numbers and whole and labels.numel() > 1 and self._is_given(labels)
