"""Axes of scores and targets: what the last layer made of them, and which of them only repeat."""

import torch
from torch import Tensor

from .calls import LossCall

KEEPS_AXES = ("View", "UnsafeView", "ReshapeAlias", "ToCopy", "AddBackward", "MulBackward", "DivBackward")
"""Nodes of the graph that leave the last axis where it is."""
PRODUCTS = ("Addmm", "Mm", "Bmm", "Linear")


def crossed(call: LossCall, axis: int) -> bool:
    """Do the classes lie across the axis on which a linear layer has just put as many outputs?"""
    scores, head = call.input, call.head
    if not isinstance(scores, Tensor) or head is None or head.ndim != 2 or scores.ndim < 3 or axis == scores.ndim - 1:
        return False
    if not scores.shape[-1] == scores.shape[axis] == len(head):
        return False
    node = scores.grad_fn
    while node is not None and node.name().startswith(KEEPS_AXES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(PRODUCTS)


def unspread(tensor: Tensor) -> tuple[int, ...]:
    """Shape before ``expand``: axes that repeat one element count as 1, leading ones are dropped."""
    if tensor.layout is not torch.strided:
        return tuple(tensor.shape)
    shape = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    while shape and shape[0] == 1 and tensor.stride()[tensor.ndim - len(shape)] == 0:
        shape.pop(0)
    return tuple(shape)
