"""What is picked by labels: numbers of a table, as class weights by hand, and log-probabilities, as a loss by hand."""

import torch
from torch import Tensor

from .calls import LossCall, Marks, Trace
from .facts import TensorFacts
from .operation import Operation
from .operations import VIEWS
from .site import user_line

PICKS = ("__getitem__", "gather", "index_select", "take")
PICKS_ROWS = ("__getitem__", "gather", "take_along_dim")
MOST = 1000
"""Classes of a table."""


class Picked:
    """Tells ``trace``; ``facts``: of its tensors."""

    def __init__(self, trace: Trace, facts: TensorFacts) -> None:
        self._trace, self._facts = trace, facts
        self._tables: Marks[Tensor] = Marks()

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name in PICKS and len(inputs) == 2 and self._is_table(*inputs):
            self._tables.put(out, inputs[0])
        elif name in PICKS_ROWS and out.requires_grad and len(inputs) > 1 and self._facts.of(inputs[0]).logs:
            if _is_whole(inputs[-1]) and self._facts.is_given(inputs[-1]):
                given = {"input": inputs[0], "target": inputs[-1]}
                self._trace.picked.append(LossCall("nll_loss", user_line(), given, out, followed=True))
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
        return numbers and _is_whole(labels) and labels.numel() > 1 and self._facts.is_given(labels)


def _is_whole(labels: Tensor) -> bool:
    return not labels.is_floating_point() and labels.dtype != torch.bool
