"""Cosines between two outputs that both are trained, however they are written."""

from collections.abc import Callable

import torch
from torch import Tensor

from .calls import LossCall, Marks
from .operation import Operation
from .operations import NORMS, VIEWS

CONTRACTS = frozenset(
    ("mul", "matmul", "mm", "bmm", "linear", "einsum", "dot", "inner", "vdot", "vecdot", "linalg_vecdot")
)
SUMS = VIEWS | {"sum", "mean", "diagonal", "diag", "trace"}
PADS = VIEWS | {"add", "maximum", "max"}


class Cosines:
    """Follows products and lengths through one step.

    Args:
        is_trained: has a part that is trained made it of the batch?
        is_unit: are these vectors of length one?
    """

    def __init__(self, is_trained: Callable[[Tensor], bool], is_unit: Callable[[Tensor], bool]) -> None:
        self._is_trained, self._is_unit = is_trained, is_unit
        self._open: Marks[int] = Marks()
        self._lengths: Marks[int] = Marks()

    def follow(self, op: Operation) -> bool:
        """An operation has run: is its result such a cosine, or what sums up to one?"""
        name, inputs, out = op.name, op.inputs, op.out
        if name in NORMS and inputs:
            self._lengths.put(out, 1)
        elif len(inputs) == 1:
            for marks, keeps in ((self._open, SUMS), (self._lengths, PADS)):
                if name in keeps and (number := marks.get(inputs[0])):
                    marks.put(out, number)
        elif len(inputs) == 2:
            return self._pair(name, inputs[0], inputs[1], out)
        return False

    def _pair(self, name: str, a: Tensor, b: Tensor, out: Tensor) -> bool:
        lengths = self._lengths.get(a), self._lengths.get(b)
        if name == "mul" and lengths[0] and lengths[1]:
            self._lengths.put(out, lengths[0] + lengths[1])
        elif name == "div" and (missing := self._open.get(a)) and lengths[1]:
            self._open.put(out, missing - lengths[1])
            return missing <= lengths[1]
        elif name == "cosine_similarity" or name in CONTRACTS:
            if not (self._is_trained(a) and self._is_trained(b)):
                return False
            missing = 2 - self._is_unit(a) - self._is_unit(b) if name in CONTRACTS else 0
            self._open.put(out, missing)
            return not missing
        return False

    def pulls(self, call: LossCall) -> bool:
        """Is it a loss that pulls all pairs together, whatever the batch says?"""
        if call.name != "cosine_embedding_loss" or not isinstance(call.target, Tensor) or call.target.requires_grad:
            return False
        pair = call.arguments.get("input1"), call.arguments.get("input2")
        if not all(isinstance(one, Tensor) and self._is_trained(one) for one in pair):
            return False
        return bool((call.target.detach() == torch.ones((), device=call.target.device)).all())
