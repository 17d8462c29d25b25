"""Operations between a loss and a parameter whose derivative can be infinite."""

from collections import deque
from collections.abc import Collection
from typing import Any

from torch.autograd.function import BackwardCFunction

LIKELY = ("Sqrt", "Rsqrt", "Norm", "LinalgVectorNorm", "Std", "StdMean", "Acos", "Asin", "Cdist", "EuclideanDist")
"""Operations with a finite value and an infinite derivative at the edge of their domain."""
RISKY = (
    *LIKELY, "Log", "Log2", "Log10", "Log1P", "Logit", "Pow", "Div", "Reciprocal", "Exp", "Acosh", "Atanh", "Tan",
    "Erfinv", "Xlogy", "Hypot", "Renorm", "LinalgEigh", "LinalgSvd", "LinalgInvEx", "Lgamma", "Digamma",
)  # fmt: skip
"""Operations whose derivative can leave the finite numbers."""
SCALING = ("Mul", "Div", "ToCopy")
"""What Lightning and the loss scaler do to the loss before its backward."""
SILENCING = (
    "Relu", "Threshold", "Hardtanh", "Clamp", "ClampMin", "ClampMax", "Maximum", "Minimum", "Where", "Gelu", "Silu",
    "Elu", "Mish", "Softplus", "LogSigmoid", "Sigmoid", "Tanh", "Glu", "Hardswish", "Hardsigmoid", "Hardshrink",
    "Softshrink",
)  # fmt: skip
"""Operations whose derivative can be exactly zero for all samples of a unit."""
MOST_NODES = 5_000
"""Nodes looked at; about 2 µs each."""


def risky_operations(root: Any, parameter: int) -> tuple[str, ...]:
    """Names of ``RISKY`` operations on a path from ``root`` (a ``grad_fn``) to the parameter of this ``id``.

    ``LIKELY`` ones first, else in order from the loss; scaling of the loss at the root is left out.
    Keeps no reference to the graph. Empty where the parameter is not found within ``MOST_NODES`` nodes.
    """
    while _kind(root) in SCALING:
        following = [node for node, _ in root.next_functions if node is not None]
        if len(following) != 1:
            break
        root = following[0]
    order: dict[Any, list[Any]] = {}
    queue = deque([root])
    target = None
    while queue and len(order) < MOST_NODES:
        node = queue.popleft()
        if node is None or node in order:
            continue
        order[node] = [following for following, _ in node.next_functions]
        if id(getattr(node, "variable", None)) == parameter:
            target = node
        queue.extend(order[node])
    if target is None:
        return ()
    sources: dict[Any, list[Any]] = {}
    for node, following in order.items():
        for other in following:
            sources.setdefault(other, []).append(node)
    leads, queue = {target}, deque([target])
    while queue:
        for node in sources.get(queue.popleft(), ()):
            if node not in leads:
                leads.add(node)
                queue.append(node)
    names = [_kind(node) for node in order if node in leads]
    found = sorted(dict.fromkeys(name for name in names if name in RISKY), key=lambda name: name not in LIKELY)
    return tuple(name.lower() for name in found)


def past_activations(root: Any, parameters: Collection[int]) -> frozenset[int]:
    """Those of the parameters (by ``id``) that a path from ``root`` reaches without a ``SILENCING`` operation.

    Custom autograd functions and compiled parts may hide one, so no path leads through them.
    """
    found: set[int] = set()
    seen: set[Any] = set()
    queue = deque([root])
    while queue and len(seen) < MOST_NODES:
        node = queue.popleft()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = id(getattr(node, "variable", None))
        if variable in parameters:
            found.add(variable)
        if _kind(node) not in SILENCING and not isinstance(node, BackwardCFunction):
            queue.extend(following for following, _ in node.next_functions)
    return frozenset(found)


def _kind(node: Any) -> str:
    """Operation of a node of the graph, such as ``Sqrt``."""
    return type(node).__name__.rstrip("0123456789").removesuffix("Backward")
