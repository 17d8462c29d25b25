"""Samples of a batch that are meant to see each other: a table that attends to itself, rows made one sequence."""

from typing import Any

from torch import Tensor, nn

from .entering import BATCH_FIRST
from .operation import Operation
from .operations import CELLS, CONVOLUTIONS, RECURRENT

PRODUCTS = ("matmul", "mm", "bmm", "einsum")
MULTIPLIED = (*PRODUCTS, "mv", "spmm", "addmm", "hspmm", "smm")
"""Products whose last two operands are matrices, or a matrix and a vector."""
AXES = ("unsqueeze", "__getitem__", "view", "reshape", "unflatten")
"""Functions by which users add an axis."""
ATTENTION, FUSED = "multi_head_attention_forward", "scaled_dot_product_attention"


class Together:
    """Follows the operations of one step on a batch of so many samples.

    Attributes:
        reason: what lets all samples see each other; empty where nothing was seen.
        in_order: did a recurrence, convolution or attention run over the samples, in a batch of one that was made in
            the step? That is meant where they follow each other in time.
        messages: did a matrix (samples, samples) multiply values, not weights, from the left, as an adjacency does?
    """

    def __init__(self, samples: int) -> None:
        self.reason = ""
        self.messages = self.in_order = False
        self._samples = samples
        self._one_sequence = self._axis_added = False

    def follow(self, op: Operation) -> None:
        """One operation on values made from the batch."""
        name, first, out = op.name, op.first, op.out
        self.messages |= self._passes_messages(name, [a for a in op.args if isinstance(a, Tensor)])
        if first is None or self._samples < 2:
            return
        self._axis_added |= name in AXES and self._adds_axis(first, out)
        self.in_order |= self._runs_over(name, first, op.args)
        if self.reason:
            return
        if name in ("unsqueeze", "__getitem__") and first.ndim == 2 and out.ndim == 3:
            self._one_sequence |= out.shape[:2] == (1, self._samples)
        elif name in (ATTENTION, FUSED):
            if self._one_sequence and self._attends(name, first):
                self.reason = "attention between samples: the batch was made one sequence"
        elif name in PRODUCTS and (self._one_sequence or first.ndim == 2) and self._is_square(out):
            self.reason = "products of all samples with all"

    def _adds_axis(self, given: Tensor, out: Tensor) -> bool:
        """Does it make rows, or ids of tokens, a batch of one sequence?"""
        made = out.ndim == 3 or (out.ndim == 2 and not out.is_floating_point())
        return made and given.ndim < out.ndim and sorted(out.shape[:2]) == [1, self._samples]

    def _runs_over(self, name: str, given: Tensor, args: tuple[Any, ...]) -> bool:
        if name in CONVOLUTIONS:
            unbatched = given.ndim == int(name[-2]) + 1
            return (unbatched or len(given) == 1) and self._samples in given.shape[1 if unbatched else 2 :]
        if name in CELLS:
            return given.ndim == 2 and len(given) == 1
        if given.ndim == 2 and len(given) == self._samples:  # without a batch, or one packed sequence
            return name == ATTENTION or (name in RECURRENT and args[1].shape == given.shape[:1])
        if given.ndim != 3:
            return False
        if name in RECURRENT and len(args) > BATCH_FIRST and args[BATCH_FIRST]:
            return given.shape[:2] == (1, self._samples)
        timed = name in RECURRENT or name == ATTENTION
        return timed and self._axis_added and given.shape[:2] == (self._samples, 1)

    def _passes_messages(self, name: str, operands: list[Tensor]) -> bool:
        square = (self._samples, self._samples)
        if name == "einsum":
            return any(tuple(t.shape) == square for t in operands)
        if name not in MULTIPLIED or len(operands) < 2:
            return False
        left, right = operands[-2:]
        weights = isinstance(right, nn.Parameter) or isinstance(right._base, nn.Parameter)
        return tuple(left.shape) == square and not weights

    def _attends(self, name: str, query: Tensor) -> bool:
        if query.ndim < 3:
            return False
        if name == ATTENTION:  # which takes time first, whatever its module takes
            return query.shape[:2] == (self._samples, 1)
        return len(query) == 1 and query.shape[-2] == self._samples

    def _is_square(self, out: Tensor) -> bool:
        return out.shape[-2:] == (self._samples,) * 2 and (out.ndim == 2 or len(out) == 1)
