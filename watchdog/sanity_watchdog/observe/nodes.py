"""The autograd graph behind a loss, as names and shapes: nothing that it saved is unpacked."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

MOST = 20_000
"""Nodes visited: about 20 ms, once."""


def nodes(tensor: Tensor, most: int = MOST) -> Iterator[Any]:
    """Nodes that lead to ``tensor``, each once, last operation first; at most ``most``."""
    yield from nodes_from(tensor.grad_fn, most)


def nodes_from(node: Any, most: int = MOST) -> Iterator[Any]:
    """The same from a node on."""
    seen: set[Any] = set()
    todo: list[Any] = [node]
    while todo and len(seen) < most:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo += [following for following, _ in node.next_functions]


def result_shape(node: Any) -> tuple[int, ...]:
    """Shape of the node's result; empty where torch does not tell."""
    try:
        return tuple(node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
