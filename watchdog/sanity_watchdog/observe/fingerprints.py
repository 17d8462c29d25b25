"""Do two batches hold the same values? Answered from a few elements, kept on the device until they are read."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .batches import Element
from .strided import is_dense, sample

PROBED = 256
"""Elements kept per tensor: two batches that agree in all of them are taken for equal."""
WIDEST = 4
"""Tensors kept per batch, the largest ones."""


def fingerprint(found: Sequence[Element]) -> dict[str, Tensor]:
    """Up to ``PROBED`` evenly spaced values of the largest dense tensors by path, copied; nothing is read back."""
    usable = [e for e in found if e.dense and not e.tensor.is_complex()]
    largest = sorted(usable, key=lambda e: -e.tensor.numel())[:WIDEST]
    return {e.path: _probe(e.tensor) for e in largest}


def _probe(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        tensor = tensor.detach()
        if not tensor.is_contiguous() and not is_dense(tensor) and tensor.numel() > 1 << 20:
            tensor = tensor[:1]
        return sample(tensor, PROBED).clone()


def kinds(prints: Sequence[dict[str, Tensor]]) -> tuple[list[int], int]:
    """Numbers that are equal where fingerprints are equal bit by bit, and the distinct values of the poorest one.

    The fingerprints are on the CPU.
    """
    numbers: dict[tuple[tuple[str, bytes], ...], int] = {}
    found = []
    for one in prints:
        key = tuple((path, values.view(torch.uint8).numpy().tobytes()) for path, values in sorted(one.items()))
        found.append(numbers.setdefault(key, len(numbers)))
    return found, min((sum(len(set(v.tolist())) for v in one.values()) for one in prints), default=0)
