"""Attention between the samples of a batch that is meant: of a table to itself, or as one sequence."""

from typing import Any

from torch import Tensor, nn

PRODUCTS = ("matmul", "__matmul__", "mm", "bmm", "einsum")
MULTIPLIED = (*PRODUCTS, "mv", "spmm", "addmm", "hspmm", "smm")
"""Products whose last two operands are matrices, or a matrix and a vector."""


class Together:
    """Follows the operations of one step on a batch of so many samples.

    Attributes:
        reason: what lets all samples see each other; empty where nothing was seen.
        messages: did a matrix (samples, samples) multiply values, not weights, from the left, as an adjacency does?
    """

    def __init__(self, samples: int) -> None:
        self.reason = ""
        self.messages = False
        self._samples = samples
        self._one_sequence = False

    def follow(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        """One operation on values made from the batch."""
        self.messages |= self._passes_messages(name, [a for a in args if isinstance(a, Tensor)])
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if self.reason or first is None or self._samples < 2:
            return
        if name in ("unsqueeze", "__getitem__") and first.ndim == 2 and out.ndim == 3:
            self._one_sequence |= out.shape[:2] == (1, self._samples)
        elif name in ("multi_head_attention_forward", "scaled_dot_product_attention"):
            if self._one_sequence and self._attends(name, first):
                self.reason = "attention between samples: the batch was made one sequence"
        elif name in PRODUCTS and (self._one_sequence or first.ndim == 2) and self._is_square(out):
            self.reason = "products of all samples with all"

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
        if name == "multi_head_attention_forward":  # which takes time first, whatever its module takes
            return query.shape[:2] == (self._samples, 1)
        return len(query) == 1 and query.shape[-2] == self._samples

    def _is_square(self, out: Tensor) -> bool:
        return out.shape[-2:] == (self._samples,) * 2 and (out.ndim == 2 or len(out) == 1)
