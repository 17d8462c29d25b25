"""Tensors of a batch, whatever its structure, with the path by which the user reaches them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .calls import all_bare
from .loaders import Drawn
from .observer import is_plain

Step: TypeAlias = tuple[bool, Any]
"""``(True, key)`` for an item, ``(False, name)`` for an attribute."""

DEPTH = 5
UNKNOWN = Drawn()
MOST = 32
"""Tensors looked at per batch; what lies deeper or later is not."""


@dataclass(frozen=True, eq=False)
class Element:
    """One tensor of a batch.

    Attributes:
        path: as the user writes it, such as ``batch[0]`` or ``batch['x']``.
        steps: the way there, for ``follow``.
        tensor: the tensor itself.
    """

    path: str
    steps: tuple[Step, ...]
    tensor: Tensor

    @property
    def dense(self) -> bool:
        """Has it elements, each in a place of its own in memory, unlike those of a sparse tensor?"""
        return self.tensor.layout is torch.strided and self.tensor.numel() > 0


def elements(batch: Any) -> list[Element]:
    """Plain tensors of ``batch`` through mappings, sequences and objects, each once, in order."""
    found: list[Element] = []
    seen: set[int] = set()
    for path, steps, tensor in _walk(batch, "batch", (), DEPTH, seen):
        found.append(Element(path, steps, tensor))
        if len(found) == MOST:
            break
    return found


def follow(batch: Any, steps: tuple[Step, ...]) -> Tensor | None:
    """The tensor at ``steps``, or None where this batch has none there."""
    try:
        for is_item, key in steps:
            batch = batch[key] if is_item else getattr(batch, key)
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return batch if type(batch) is Tensor else None


class Samples:
    """Where the samples of a batch lie, given what a loader has ``drawn``.

    Attributes:
        count: the length that most tensors have along them, the first one's on a tie; 0 where unknown.
    """

    def __init__(self, batch: Any, drawn: Drawn = UNKNOWN) -> None:
        found = [e.tensor for e in elements(batch) if e.tensor.ndim]
        self._drawn = drawn
        self._columns = {len(t) for t in found if t.ndim == 1}
        lengths = [t.shape[self.axis(t) or 0] for t in found]
        self.count = max(lengths, key=lengths.count) if lengths else 0

    def axis(self, tensor: Tensor) -> int | None:
        """Axis of the samples in a tensor of the batch: 1 where a sequence's steps come first; None for either."""
        count = self._drawn.count
        if tensor.ndim < 2 or self._drawn.stacked:
            return 0
        first, second = tensor.shape[:2]
        if first == second:
            return None if _has_steps(tensor) or first == count else 0
        if second == count > 1 and first % count:
            return None if first in self._columns else 1
        return 0


def _has_steps(tensor: Tensor) -> bool:
    """Has it two axes that may be samples and steps?"""
    return tensor.ndim > 2 or (tensor.ndim == 2 and not tensor.is_floating_point())


def _walk(
    value: Any, path: str, steps: tuple[Step, ...], depth: int, seen: set[int]
) -> Iterator[tuple[str, tuple[Step, ...], Tensor]]:
    if isinstance(value, Tensor):
        if is_plain(value) and id(value) not in seen:
            seen.add(id(value))
            yield path, steps, value
        return
    if not depth or id(value) in seen:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}[{key!r}]", (*steps, (True, key)), depth - 1, seen)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(() if all_bare(value) else value):
            yield from _walk(item, f"{path}[{i}]", (*steps, (True, i)), depth - 1, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        seen.add(id(value))
        for name, item in vars(value).items():
            yield from _walk(item, f"{path}.{name}", (*steps, (False, name)), depth - 1, seen)


def length_of(found: list[Element]) -> tuple[Step, ...]:
    """Where a tensor is whose length is the number of samples: the length that most tensors have."""
    lengths = Counter(len(e.tensor) for e in found if e.tensor.ndim)
    usual = lengths.most_common(1)[0][0] if lengths else 0
    return next((e.steps for e in found if e.tensor.ndim and len(e.tensor) == usual), ())
