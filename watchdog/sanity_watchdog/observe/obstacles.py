"""When the first step's graph must not be run twice, and when samples are meant to see each other."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .batches import Element
from .calls import Frontier, LossCall, Trace
from .nodes import nodes, nodes_from, result_shape
from .operations import RECURRENT

_autograd: Any = torch._C._autograd

GRAPHS = ("Sparse", "ScatterAdd", "ScatterReduce", "IndexAdd", "IndexReduce", "SegmentReduce", "IndexSelect")
"""Nodes of message passing between the rows of a batch."""
OVER_TIME: dict[str, Any] = dict.fromkeys(RECURRENT, nn.RNNBase)
OVER_TIME["multi_head_attention_forward"] = nn.MultiheadAttention
"""Functions that mix positions before anything can be asked of them, and their modules, with ``batch_first``."""
NORM = "BatchNorm mixes samples on purpose"
STATISTICS = ("VarBackward", "StdBackward", "VarMeanBackward", "StdMeanBackward")
TABLES, SPREAD = ("CdistBackward", "EuclideanDistBackward", "MmBackward"), ("SubBackward", "MulBackward")
"""Beginnings of the names of nodes of two tables that meet row by row, the latter once both are spread."""
PASSES_ON = ("Neg", "Pow", "Mul", "Div", "Sum", "Mean", "Sqrt", "View", "UnsafeView", "Squeeze", "T", "Add", "Sub")
NEAR = 8
"""Nodes behind the scores."""


def saved_tensor_hooks() -> bool:
    """Whether hooks take what operations save for backward, as under checkpointing and offloading."""
    peek = getattr(_autograd, "_top_saved_tensors_default_hooks", None)
    if peek is not None:
        return peek(True) is not None
    if not _autograd._saved_tensors_hooks_is_enabled():
        return False
    try:  # older torch cannot look, but refuses to forbid hooks that are in force
        _autograd._saved_tensors_hooks_disable("")
    except RuntimeError:
        return True
    finally:
        _autograd._saved_tensors_hooks_enable()
    return False


def obstacle(trace: Trace, behind: Iterable[Any], loss: Tensor) -> str:
    """Why the graph between the data and the scores must not be run a second time; empty where it may."""
    if trace.obstacles:
        return trace.obstacles[0]
    if any(f.data.is_nested for f in trace.frontier):
        return "nested tensors, whose samples lie along no axis"
    for node in behind:
        name = node.name()
        if "CompiledFunction" in name:
            return "a compiled part, whose buffers the real backward gets"
        if "Checkpoint" in name:
            return "gradient checkpointing, which repeats the forward"
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return f"the custom autograd function {name.removesuffix('Backward')}"
        if getattr(node, "_backward_hooks", None) and "AccumulateGrad" not in name:
            return "hooks on the graph"
    if any("DDPSink" in node.name() for node, _ in zip(nodes(loss), range(8), strict=False)):
        return "DDP that looks for unused parameters"
    return ""


def mixing_on_purpose(
    call: LossCall, behind: Sequence[Any], samples: int, batch: Iterable[Element], module: nn.Module, trace: Trace
) -> str:
    """Why the samples of this batch may depend on each other; empty where they must not.

    BatchNorm is named where it is the only reason: there a sample still depends on itself before all others.
    """
    norm = ""
    for node in behind:
        name = node.name()
        if "BatchNorm" in name and bool(getattr(node, "_saved_training", True)):
            norm = NORM
        if any(part in name for part in GRAPHS):
            return f"{name.removesuffix('Backward0')} passes messages between rows"
        if name.startswith(STATISTICS) and _over_batch(node):
            return "statistics over the batch"
        if name.count("Backward") > 1:
            return "a gradient inside the step, as in meta-learning"
    scores, target = call.input, call.target
    beside = call.rows is not None and tuple(call.rows.shape) == (1, samples)
    if scores.ndim == 2 and scores.shape[1] in (samples, 2 * samples, len(scores)) and not beside:
        return "as many scores as samples: a contrastive loss"
    flat = target.reshape(-1)
    if not target.is_floating_point() and bool((flat == torch.arange(len(flat), device=flat.device)).all()):
        return "targets that count the rows: a contrastive loss"
    if _compares_samples(scores.grad_fn, {f.operation.out.grad_fn for f in trace.frontier}):
        return "scores that compare samples, or their means, with each other"
    data = [e.tensor for e in batch]
    if any(
        _adjacency(t, samples) for t in [*(t for t in data if not _features(t, data, call, trace)), *module.buffers()]
    ):
        return "a graph"
    return norm


def _compares_samples(node: Any, entered: set[Any]) -> bool:
    """Do both of two tables come from the data, whose rows the scores compare?"""
    for _ in range(NEAR):
        pair = [f for f, _ in node.next_functions if f is not None] if node is not None else []
        if len(pair) == 2 and (node.name().startswith(TABLES) or _are_spread(node, pair)):
            return not any(entered.isdisjoint(nodes_from(f)) for f in pair)
        if not pair or not node.name().startswith(PASSES_ON):
            break
        node = pair[0]
    return False


def _are_spread(node: Any, pair: Sequence[Any]) -> bool:
    """Is it the difference or the product of two tables of unlike shapes, or of their directions?"""
    given = [f.next_functions[0][0] or f if f.name().startswith("Div") else f for f in pair]
    spread = all(f.name().startswith("Expand") or result_shape(f) != result_shape(node) for f in given)
    return spread and node.name().startswith(SPREAD)


def _features(tensor: Tensor, data: Sequence[Tensor], call: LossCall, trace: Trace) -> bool:
    """Does a tensor of the batch hold features of samples, or their targets, and nothing that passes messages?"""
    if tensor.layout is not torch.strided or (trace.attending is not None and trace.attending.together.messages):
        return False
    used = [f.data for f in trace.frontier] + [t for t in (call.target,) if isinstance(t, Tensor)]
    whole = tensor if tensor._base is None else tensor._base
    entered = any((t if t._base is None else t._base) is whole for t in used)
    return entered or (tensor.is_floating_point() and not any(t.is_floating_point() for t in data if t is not tensor))


def _over_batch(node: Any) -> bool:
    try:
        axes = node._saved_dim
    except (AttributeError, RuntimeError):
        return True
    return not axes or 0 in axes


def _adjacency(tensor: Tensor, samples: int) -> bool:
    if tensor.layout is not torch.strided:
        return True
    edges = not tensor.is_floating_point() and tensor.ndim == 2 and len(tensor) == 2 and samples != 2
    return edges or (tensor.ndim == 2 and tuple(tensor.shape) == (samples, samples))


def batch_as_time(frontier: Iterable[Frontier], samples: int, module: nn.Module) -> str:
    """The function over sequences that takes the axis of the batch for that of time; empty where there is none."""
    for place in frontier:
        kind = OVER_TIME.get(place.operation.name)
        if kind is None or any(m.batch_first for m in module.modules() if isinstance(m, kind)):
            continue
        if place.data.ndim != 3 or (place.rows is not None and place.rows.shape[0] == 1):
            continue
        if samples > 1 and len(place.data) == samples != place.data.shape[1]:
            return place.operation.name
    return ""
