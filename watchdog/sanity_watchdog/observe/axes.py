"""Axes of scores and targets: what the last layer made of them, and which of them only repeat."""

import torch
from torch import Tensor

from .calls import LossCall

KEEPS_AXES = ("View", "UnsafeView", "ReshapeAlias", "ToCopy", "AddBackward", "MulBackward", "DivBackward")
"""Nodes of the graph that leave the last axis where it is."""
PRODUCTS = ("Addmm", "Mm", "Bmm", "Linear")


def crossed(call: LossCall, axis: int) -> bool:
    """Do the classes lie across the axis on which the last layer has put as many outputs?"""
    scores, head, layout = call.input, call.head, call.classes
    if isinstance(scores, Tensor) and layout is not None and layout.ndim == scores.ndim:
        return scores.shape[axis] == int(layout.amax()) + 1 > 1 == layout.shape[axis] < layout.numel()
    if not isinstance(scores, Tensor) or head is None or head.ndim != 2 or scores.ndim < 3 or axis == scores.ndim - 1:
        return False
    if not scores.shape[-1] == scores.shape[axis] == len(head):
        return False
    node = scores.grad_fn
    while node is not None and node.name().startswith(KEEPS_AXES):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(PRODUCTS)


def repeated(call: LossCall, axis: int) -> bool:
    """Is one output of the last layer more than one of the classes of a row, as after a reshape across axes?

    The layer has as many outputs as there are classes, or a multiple of it, as for several anchors at each place. With
    fewer of them places are classes as well, as in a map from which one place is chosen.
    """
    scores, layout = call.input, call.classes
    if not isinstance(scores, Tensor) or layout is None or layout.ndim != scores.ndim or layout.shape[axis] == 1:
        return False
    classes = scores.shape[axis]
    if (int(layout.amax()) + 1) % classes or layout.shape[axis] != classes:
        return False
    rows = layout.movedim(axis, -1).reshape(-1, classes).sort(1).values
    return bool((rows[:, 1:] == rows[:, :-1]).any())


def unspread(tensor: Tensor) -> tuple[int, ...]:
    """Shape before ``expand``: axes that repeat one element count as 1, leading ones are dropped."""
    if tensor.layout is not torch.strided:
        return tuple(tensor.shape)
    shape = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    while shape and shape[0] == 1 and tensor.stride()[tensor.ndim - len(shape)] == 0:
        shape.pop(0)
    return tuple(shape)
