"""Leaves of the graph behind a loss, and where in the module they live. Reads only; no node is kept."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .holding import ids_held_by
from .names import plain_name
from .observer import is_plain
from .run import Run

NODES = 20_000
"""Nodes visited at most: about 0.1 s, once a run."""
FEW = 500
"""Nodes of a graph that may end in no parameter: one made of numbers is short."""
VISITS = 20_000
"""Attributes and items visited at most when looking for where a tensor lives."""
ITEMS, DEPTH = 256, 4
"""Items of one container, and containers inside each other, that are searched."""
NOT_SEARCHED = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "numpy", "builtins")
"""Packages whose objects are not searched for tensors."""
OWN = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class Leaves:
    """Leaf tensors that a backward would fill.

    Attributes:
        tensors: each of them once.
        hidden: why there may be more; empty where the whole graph was seen.
    """

    tensors: tuple[Tensor, ...]
    hidden: str = ""


def leaves(loss: Tensor, limit: int = NODES) -> Leaves:
    """Walk the graph of ``loss`` and collect its leaves."""
    found: dict[int, Tensor] = {}
    hidden = ""
    todo: list[Any] = [loss.grad_fn]
    seen = {None, *todo}
    while todo:
        node = todo.pop()
        if node is None:
            continue
        name = node.name()
        if name.endswith("AccumulateGrad"):
            found[id(node.variable)] = node.variable
        elif name == "CheckpointFunctionBackward":
            hidden = "a reentrant checkpoint hides its part of the graph"
        for following, _ in node.next_functions:
            if following not in seen:
                seen.add(following)
                todo.append(following)
        if len(seen) > limit:
            return Leaves(tuple(found.values()), f"the graph of the loss has more than {limit:,} nodes")
    return Leaves(tuple(found.values()), hidden)


def reaches_nothing(loss: Tensor, run: Run) -> bool:
    """Does the graph of this loss, where all of it is short enough to be seen, end in no parameter at all?"""
    ends = leaves(loss, FEW)
    if ends.hidden or not ends.tensors or any(isinstance(t, nn.Parameter) for t in ends.tensors):
        return False
    held = ids_held_by(*run.optimizers)
    return all(id(t) not in held and is_plain(t) for t in ends.tensors)


def seeks_input(loss: Tensor, run: Run) -> bool:
    """Would a backward pass fill a tensor that is no parameter and that no optimizer holds?"""
    held = ids_held_by(*run.optimizers)
    return any(not isinstance(t, nn.Parameter) and id(t) not in held for t in leaves(loss).tensors)


@dataclass(frozen=True)
class Home:
    """Where a tensor lives: its attribute path, and whether the module nearest to it is in eval mode."""

    path: str
    evaluating: bool


def homes(module: nn.Module, wanted: Iterable[Tensor]) -> dict[int, Home]:
    """Attribute paths, by ``id``, of tensors that are reachable from ``module`` but not registered in it."""
    missing = {id(t) for t in wanted}
    found: dict[int, Home] = {}
    for visits, (path, tensor, evaluating) in enumerate(_reachable(module)):
        if id(tensor) in missing:
            missing.discard(id(tensor))
            found[id(tensor)] = Home(path, evaluating)
        if not missing or visits > VISITS:
            break
    return found


def _reachable(module: nn.Module) -> Iterator[tuple[str, Any, bool]]:
    for prefix, owner in module.named_modules():
        seen: set[int] = set()
        for key, value in vars(owner).items():
            if key not in OWN:
                path = plain_name(f"{prefix}.{key}" if prefix else key)
                yield from _inside(value, path, not owner.training, DEPTH, seen)


def _inside(value: Any, path: str, evaluating: bool, depth: int, seen: set[int]) -> Iterator[tuple[str, Any, bool]]:
    yield path, value, evaluating
    if depth == 0 or isinstance(value, (Tensor, str, bytes, type)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        for name, parameter in value.named_parameters():
            yield f"{path}.{name}", parameter, not value.training
        for name, inner in value.named_modules():
            for key, item in vars(inner).items():
                if key not in OWN:
                    where = f"{path}.{name}.{key}" if name else f"{path}.{key}"
                    yield from _inside(item, where, not inner.training, depth - 1, seen)
        return
    for step, item in _items(value):
        yield from _inside(item, path + step, evaluating, depth - 1, seen)


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", v) for i, v in enumerate(value[:ITEMS])]
    if isinstance(value, dict):
        return [(f"[{k!r}]", v) for k, v in list(value.items())[:ITEMS]]
    if type(value).__module__.partition(".")[0] in NOT_SEARCHED:
        return []
    return [(f".{k}", v) for k, v in list(getattr(value, "__dict__", {}).items())[:ITEMS]]
