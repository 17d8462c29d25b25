"""Tensors of a batch, whatever its structure, with the path by which the user reaches them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .observer import is_plain

Step: TypeAlias = tuple[bool, Any]
"""``(True, key)`` for an item, ``(False, name)`` for an attribute."""

DEPTH = 5
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


def size_of(batch: Any, drawn: int = 0) -> int:
    """Samples in the batch: the length that most of its tensors have, the first one's on a tie; 0 where unknown."""
    lengths = [e.tensor.shape[sample_axis(e.tensor, drawn)] for e in elements(batch) if e.tensor.ndim]
    return max(lengths, key=lengths.count) if lengths else 0


def sample_axis(tensor: Tensor, drawn: int) -> int:
    """Axis of the samples, given how many the loader draws (0 where unknown): 1 where a sequence's steps come first."""
    return int(_has_steps(tensor) and drawn > 1 and tensor.shape[1] == drawn and tensor.shape[0] % drawn != 0)


def is_square(tensor: Tensor) -> bool:
    """Could the samples lie on either of the first two axes?"""
    return _has_steps(tensor) and tensor.shape[0] == tensor.shape[1]


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
        for i, item in enumerate(value):
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
