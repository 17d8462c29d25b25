"""The autograd graph behind a loss, as names and shapes: nothing that it saved is unpacked unless asked for."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

MOST = 20_000
"""Nodes visited: about 20 ms, once."""
VIEWS = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "ToCopyBackward0", "TransposeBackward0")
LAYERS = {
    "ConvolutionBackward0": ("convolution", "_saved_input"),
    "AddmmBackward0": ("linear", "_saved_mat1"),
    "MmBackward0": ("linear", "_saved_self"),
    "LinearBackward0": ("linear", "_saved_input"),
    "NativeBatchNormBackward0": ("batch_norm", "_saved_input"),
    "CudnnBatchNormBackward0": ("batch_norm", "_saved_input"),
    "MiopenBatchNormBackward0": ("batch_norm", "_saved_input"),
    "NativeLayerNormBackward0": ("layer_norm", "_saved_input"),
    "NativeGroupNormBackward0": ("group_norm", "_saved_input"),
    "EmbeddingBackward0": ("embedding", "_saved_indices"),
}
"""Node of a layer: what it is called, and the attribute that holds the layer's input."""


def nodes(tensor: Tensor, most: int = MOST) -> Iterator[Any]:
    """Nodes that lead to ``tensor``, each once, last operation first; at most ``most``."""
    seen: set[Any] = set()
    todo: list[Any] = [tensor.grad_fn]
    while todo and len(seen) < most:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        todo += [following for following, _ in node.next_functions]


def layer_of(tensor: Tensor) -> tuple[str, Any]:
    """Which layer made ``tensor``, as in ``LAYERS``, and its node; ``("", None)`` for anything else."""
    node: Any = tensor.grad_fn
    for _ in range(4):
        if node is None:
            break
        if node.name() in LAYERS:
            return LAYERS[node.name()][0], node
        if node.name() not in VIEWS:
            break
        node = node.next_functions[0][0]
    return "", None


def layer_input(node: Any) -> Tensor | None:
    """The input that a layer's node has saved; None where it saved none or has been freed.

    Unpacks it, so it must not be called where saved-tensor hooks (checkpointing, offloading) are at work.
    """
    try:
        saved = getattr(node, LAYERS[node.name()][1])
    except (AttributeError, RuntimeError):
        return None
    return saved if isinstance(saved, Tensor) else None


def result_shape(node: Any) -> tuple[int, ...]:
    """Shape of the node's result; empty where torch does not tell."""
    try:
        return tuple(node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return ()
