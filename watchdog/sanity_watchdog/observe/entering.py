"""What a row of the scores owes to the data themselves: the operation that they entered by is run once more."""

from typing import Any

import torch
from torch import Tensor

from .calls import Frontier
from .operations import CONVOLUTIONS, RECURRENT
from .sequences import Entry

AGAIN = CONVOLUTIONS | RECURRENT | {"linear", "matmul", "mul", "add"}
"""Operations that can be run again for one sample: they draw nothing and keep nothing."""
DROPOUT, BATCH_FIRST = 5, 8
"""Places of recurrent functions' arguments."""


def by_position(entry: Entry, gradient: Tensor, sample: int) -> Tensor | None:
    """Influence ``(positions,)`` of the values of one sample, given the gradient of the operation's result.

    None where the operation cannot be run again.
    """
    place, axes = entry.place, (entry.sample_axis, entry.position_axis)
    if place.operation.name == "embedding" and gradient.shape[:-1] == place.data.shape:
        felt = gradient
    else:
        found = _again(place, gradient, entry.sample_axis, sample)
        if found is None:
            return None
        felt, sample = found, 0
    felt = felt.detach().abs().float().movedim(axes, (0, 1))[sample]
    if felt.ndim > 1:
        felt = felt[:, entry.column] if entry.column >= 0 else felt.flatten(1).amax(1)
    return felt[entry.offset :]


def _again(place: Frontier, gradient: Tensor, axis: int, sample: int) -> Tensor | None:
    """Gradient of one sample's data through the operation alone; its weights are left out of the graph."""
    op = place.operation
    name = op.name
    if name not in AGAIN or not place.data.is_floating_point():
        return None
    args, kwargs = op.args, op.kwargs
    result_axis = axis
    if name in RECURRENT:
        if kwargs or len(args) <= BATCH_FIRST or op.index or axis != (0 if args[BATCH_FIRST] else 1):
            return None
        args = (*args[:DROPOUT], 0.0, *args[DROPOUT + 1 :])
    elif name in CONVOLUTIONS and axis:
        return None
    elif name == "matmul":
        result_axis = axis if gradient.ndim == place.data.ndim else -1
    if not 0 <= result_axis < gradient.ndim or gradient.shape[result_axis] != place.data.shape[axis]:
        return None
    entered = place.data.detach().narrow(axis, sample, 1).requires_grad_()

    def given(value: Any, state: bool = False) -> Any:
        if value is place.data:
            return entered
        if isinstance(value, Tensor):
            return value.detach().narrow(1, sample, 1).contiguous() if state else value.detach()
        return type(value)(given(v, state) for v in value) if type(value) in (list, tuple) else value

    states = {1} if name in RECURRENT else set()
    with torch.enable_grad():
        places = (given(a, i in states) for i, a in enumerate(args))
        out = op.function(*places, **{k: given(v) for k, v in kwargs.items()})
        out = out[op.index] if isinstance(out, (tuple, list)) else out
        wanted = gradient.detach().narrow(result_axis, sample, 1).to(out.dtype)
        return torch.autograd.grad(out, entered, wanted)[0]
