"""Where the rows of a tensor, or its columns, end up when views and reshapes move them about.

A layout is a tensor of numbers on the host, ``int32``, as many axes as the tensor that it belongs to; axes along which
the numbers do not change have length one. It is made from shapes alone: no value of the user's tensor is read.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .operation import Operation
from .operations import ELEMENTWISE, MOVES, RESHAPES, SPREADS

PICKS = ("__getitem__", "index_select")
REPEATS = ("repeat", "tile")
REDUCES = ("sum", "mean", "amax", "amin", "argmax", "argmin")
MOST = 1 << 20
"""Numbers of a layout; larger ones are given up."""


def numbered(length: int, axis: int, axes: int) -> Tensor:
    """0 … length - 1 along one of so many axes."""
    shape = [1] * axes
    shape[axis] = length
    return torch.arange(length, dtype=torch.int32).reshape(shape)


def after(op: Operation, known: Sequence[Tensor | None]) -> Tensor | None:
    """Layout of an operation's result, given those of its inputs; None where it is not known."""
    name, inputs, out = op.name, op.inputs, op.out
    layouts = [(t, k) for t, k in zip(inputs, known, strict=True) if k is not None]
    if not layouts:
        return None
    source, layout = layouts[0]
    if name in RESHAPES:
        return _reshaped(layout, source.shape, out.shape) if len(inputs) == 1 else None
    if name in MOVES:
        return _moved(op, source, layout) if len(inputs) == 1 or name in PICKS else None
    if name == "one_hot":
        return layout[..., None]
    if name == "stack":
        return _stacked(op, known)
    if name in REPEATS or name == "repeat_interleave":
        return _repeated(op, source, layout) if len(inputs) == 1 else None
    if name in REDUCES:
        return _reduced(op, source, layout) if len(inputs) == 1 else None
    if name in SPREADS:
        return _spread(layout, out) if source is inputs[0] else None
    if name not in ELEMENTWISE or any(k is not layout and not torch.equal(k, layout) for _, k in layouts[1:]):
        return None
    return _spread(layout, out)


def _spread(layout: Tensor, out: Tensor) -> Tensor | None:
    """The same numbers behind new leading axes, and along axes that had the length one."""
    spare = out.ndim - layout.ndim
    fits = spare >= 0 and all(n in (1, m) for n, m in zip(layout.shape, out.shape[spare:], strict=True))
    return None if not fits else layout[(None,) * spare] if spare else layout


def _stacked(op: Operation, known: Sequence[Tensor | None]) -> Tensor | None:
    """Of tensors of one shape side by side; None where one of them is unknown."""
    axis = op.argument("dim", 1, 0)
    layouts = [k for k in known if k is not None]
    if len(layouts) < len(op.inputs) or not isinstance(axis, int):
        return None
    if all(k is layouts[0] or torch.equal(k, layouts[0]) for k in layouts[1:]):
        return layouts[0].unsqueeze(axis)
    shape = [max(sizes) for sizes in zip(*(k.shape for k in layouts), strict=True)]
    return torch.stack([k.expand(shape) for k in layouts], axis) if math.prod(shape) * len(layouts) <= MOST else None


def _repeated(op: Operation, source: Tensor, layout: Tensor) -> Tensor | None:
    out = op.out
    if not 0 < out.numel() <= MOST:
        return None
    if op.name == "repeat_interleave":
        times, axis = op.argument("repeats", 1), op.argument("dim", 2)
        if type(times) is not int:
            return None
        if axis is None:
            return layout.expand(source.shape).reshape(-1).repeat_interleave(times)
        return layout if layout.shape[axis] == 1 else layout.repeat_interleave(times, axis)
    given = [n for a in (*op.args[1:], *op.kwargs.values()) for n in (a if isinstance(a, (tuple, list)) else (a,))]
    whole = layout[(None,) * (out.ndim - layout.ndim)]
    if len(given) > out.ndim or not all(type(n) is int for n in given):
        return None
    given = [1] * (out.ndim - len(given)) + given
    return whole.repeat([n if k > 1 else 1 for n, k in zip(given, whole.shape, strict=True)])


def _reduced(op: Operation, source: Tensor, layout: Tensor) -> Tensor | None:
    """Of a reduction over axes along which the numbers do not change; None for any other."""
    axes = op.argument("dim", 1)
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    if not all(type(a) is int for a in axes):
        return None
    gone = {a % source.ndim for a in axes}
    if any(layout.shape[a] > 1 for a in gone):
        return None
    return layout if op.out.ndim == source.ndim else layout.squeeze(tuple(gone))


def _moved(op: Operation, source: Tensor, layout: Tensor) -> Tensor | None:
    name, args = op.name, op.args
    if not args or args[0] is not source:
        return None
    if name == "__getitem__" and any(isinstance(i, (Tensor, list)) for i in _indices(args[1])):
        return _picked(layout, args[1], 0)
    if name == "index_select":
        return _picked(layout, args[2], int(args[1])) if len(args) > 2 else None
    moved = op.function(layout.expand(source.shape), *args[1:], **op.kwargs)
    moved = moved[op.index] if isinstance(moved, (tuple, list)) else moved
    return _collapsed(moved) if moved.shape == op.out.shape else None


def _picked(layout: Tensor, index: Any, axis: int) -> Tensor | None:
    """Rows in the order of ``index``, which is read; None where it is more than a list of rows."""
    if not isinstance(index, Tensor) or index.ndim != 1:
        return None
    return layout if layout.shape[axis] == 1 else layout.index_select(axis, _rows(index))


def _rows(index: Tensor) -> Tensor:
    index = index.detach().cpu()
    return index.nonzero()[:, 0] if index.dtype in (torch.bool, torch.uint8) else index.long()


def _indices(index: Any) -> Iterable[Any]:
    return index if isinstance(index, tuple) else (index,)


def _collapsed(layout: Tensor) -> Tensor:
    for axis in range(layout.ndim):
        if layout.stride(axis) == 0 and layout.shape[axis] > 1:
            layout = layout.narrow(axis, 0, 1)
    return layout


def _reshaped(layout: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor | None:
    """The same order of elements in another shape; only the axes that belong together are written out."""
    if 0 in old or math.prod(old) != math.prod(new):
        return None
    full, result, groups = [], [], _groups(old, new)
    for (a, b), (c, d) in groups:
        changes = any(n > 1 for n in layout.shape[a:b])
        full += list(old[a:b]) if changes else [1] * (b - a)
        result += list(new[c:d]) if changes else [1] * (d - c)
    if math.prod(full) > MOST:
        return None
    found = layout.expand(full).reshape(result)
    for axis, length in enumerate(result):
        first = found.narrow(axis, 0, 1)
        if length > 1 and torch.equal(found, first.expand(found.shape)):  # as where each sample was repeated
            found = first
    return found


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Runs of axes of both shapes that hold equally many elements, as short as possible."""
    found, a, c = [], 0, 0
    while a < len(old) or c < len(new):
        b, d = min(a + 1, len(old)), min(c + 1, len(new))
        while (left := math.prod(old[a:b])) != (right := math.prod(new[c:d])):
            if left < right:
                b += 1
            else:
                d += 1
        found.append(((a, b), (c, d)))
        a, c = b, d
    return found
