"""How one loss call enters the loss that the step returns, by the names of autograd nodes alone.

Names are always safe to read; saved tensors are not (unpacking them repeats forwards under checkpointing).
"""

from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction

PASSES_ON = (
    "Add",
    "Sum",
    "View",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "ToCopy",
    "Stack",
    "Cat",
    "Clone",
    "Alias",
    "Expand",
)
"""Beginnings of the names of nodes that hand every element of a loss on with the factor one."""
REDUCES = ("Sum", "Mean")
NODES = 500
NEAR = 8
"""Nodes before the loss among which an opaque function is the loss's own."""


def enters_as_sum(objective: Any, value: Any) -> bool | None:
    """Is ``objective`` the sum of all elements of ``value`` plus other terms? None where no path was found."""
    if not isinstance(objective, Tensor) or not isinstance(value, Tensor):
        return None
    if objective is value:
        return True
    start, goal = objective.grad_fn, value.grad_fn
    if start is None or goal is None:
        return None
    seen = {start}
    todo: list[tuple[Any, bool]] = [(start, True)]
    while todo and len(seen) < NODES:
        node, clean = todo.pop()
        if node is goal:
            return clean
        clean = clean and node.name().startswith(PASSES_ON)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append((following, clean))
    return None


def may_be_weighed(objective: Any, value: Any) -> bool:
    """Can a mask stand between the elements of ``value`` and their sum? True where no path is found."""
    if not isinstance(value, Tensor) or value.numel() <= 1:
        return False
    start = objective.grad_fn if isinstance(objective, Tensor) else None
    todo: list[tuple[Any, bool]] = [(start, False)] if start is not None and value.grad_fn is not None else []
    seen = {start}
    while todo and len(seen) < NODES:
        node, direct = todo.pop()
        if node is value.grad_fn:
            return not direct
        name = node.name()
        direct = name.startswith(REDUCES) or (direct and name.startswith((*PASSES_ON, "Neg")))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append((following, direct))
    return True


def custom_function(objective: Tensor) -> str:
    """Name of the user's own ``autograd.Function`` that the loss comes from, empty where there is none nearby."""
    todo, seen = [objective.grad_fn], 0
    while todo and seen < NEAR:
        node = todo.pop(0)
        if node is None:
            continue
        seen += 1
        if isinstance(node, BackwardCFunction):
            return node.name().removesuffix("Backward")
        todo += [following for following, _ in node.next_functions]
    return ""


UNMIXED = (
    "View",
    "UnsafeView",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Select",
    "ToCopy",
    "Alias",
    "Sigmoid",
    "LogSoftmax",
)
"""Beginnings of the names of nodes behind which a bias still moves all scores by the same."""
SHORT = 6


def bias_behind(scores: Tensor) -> Tensor | None:
    """The trainable bias of the linear layer that makes these scores, with only views or a squashing after it."""
    node = scores.grad_fn
    for _ in range(SHORT):
        if node is None or not node.name().startswith(UNMIXED):
            break
        node = node.next_functions[0][0]
    if node is None or not node.name().startswith("Addmm"):
        return None
    end = node.next_functions[0][0]
    if end is not None and end.name().startswith("ToCopy"):
        end = end.next_functions[0][0]
    return getattr(end, "variable", None)
