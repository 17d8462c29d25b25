"""Losses that the step computes and does not return."""

from collections.abc import Iterable

from torch import Tensor

from .calls import LossCall
from .nodes import MOST, nodes


def left_out(loss: Tensor, calls: Iterable[LossCall]) -> dict[int, str]:
    """Leaves that a loss call has and ``loss`` has not, by identity, with the call's name and line."""
    inside = set(nodes(loss))
    if len(inside) >= MOST:
        return {}
    ends = {id(node.variable) for node in inside if hasattr(node, "variable")}
    found: dict[int, str] = {}
    for call in calls:
        if not isinstance(call.value, Tensor) or call.value.grad_fn is None or call.value.grad_fn in inside:
            continue
        for node in nodes(call.value):
            if hasattr(node, "variable") and id(node.variable) not in ends:
                found.setdefault(id(node.variable), f"{call.name} at {call.where}")
    return found
