"""What enters the first weights: measured on its device in the first step."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..evidence.data import Entry
from .batches import Element, Samples
from .calls import Frontier
from .observer import is_plain

MOST = 1 << 20
"""Elements measured per tensor."""
WIDEST = 8
"""Tensors measured of those that met weights, and of those that were attached."""
TWICE, ROUNDING = 255.0**2, 1e-3
"""Pixels of 8 bits that were divided by 255 twice are whole numbers of such parts; float32 is off by 5e-5 of one."""
NORMALISING = ("BatchNorm", "LayerNorm", "GroupNorm", "RMSNorm", "RmsNorm")

ATTACHES = ("cat", "hstack")
MULTIPLIES = ("AddmmBackward", "MmBackward")
"""What the names of the nodes begin with that a linear layer leaves in the graph."""


class Entering:
    """A tensor with data of the batch and the layer that took it.

    Attributes:
        tensor: as it entered. node: of the graph, where it was attached to something with weights behind it.
        For the others see ``Entry``.
    """

    def __init__(
        self, tensor: Tensor, operation: str, path: str, where: str, normalised: bool = False, node: Any = None
    ) -> None:
        self.tensor, self.operation, self.path, self.where = tensor, operation, path, where
        self.normalised, self.node = normalised, node

    @torch.no_grad()
    def measure(self) -> dict[str, Tensor]:
        """Numbers by name, on the device; see ``entry``."""
        flat = few(self.tensor.detach()).float()
        good = flat.isfinite()
        values = torch.where(good, flat, 0.0)
        found = {
            "low": values.amin(),
            "high": values.amax(),
            "mean": values.mean(),
            "deviation": values.std(correction=0),
            "zeros": (flat == 0).float().mean(),
            "whole": (flat == flat.round()).float().mean(),
            "twice": ((flat * TWICE).round() - flat * TWICE).abs().le(ROUNDING).float().mean(),
            "equal": (flat == flat[:1]).all(),
        }
        if self.tensor.ndim == 2 and self.tensor.shape[1] > 1:
            rms, places = values.square().mean(0).sqrt().sort()
            used = (rms > 0).sum()
            middle = (len(rms) - used + used // 2).clamp(max=len(rms) - 1)
            found |= {"feature_high": rms[-1], "feature_median": rms.gather(0, middle[None])[0], "feature": places[-1]}
        return found

    def entry(self, found: Mapping[str, Tensor]) -> Entry:
        """The evidence from what ``measure`` gave, on the host."""
        number = {name: float(value) for name, value in found.items()}
        equal = bool(number.pop("equal"))
        feature = int(number.pop("feature", -1))
        return Entry(
            path=self.path,
            operation=self.operation,
            shape=tuple(self.tensor.shape),
            equal_rows=equal,
            feature=feature,
            where=self.where,
            normalised=self.normalised,
            **number,
        )


def few(tensor: Tensor) -> Tensor:
    """At most about ``MOST`` elements as ``(samples, values)``: the first samples, of long ones every n-th value."""
    tensor = tensor[: max(2, MOST * len(tensor) // tensor.numel())]
    flat = tensor.reshape(len(tensor), -1) if tensor.ndim > 1 else tensor[:, None]
    flat = flat[: max(2, MOST // flat.shape[1])]
    return flat[:, :: max(1, 2 * flat.shape[1] // MOST)]


def entering(
    frontier: Iterable[Frontier], batch: Iterable[Element], samples: Samples, consumers: Mapping[Any, set[str]]
) -> tuple[list[Entering], list[str]]:
    """What enters the first weights, and the names of operations whose input cannot be read."""
    owners = {e.tensor.untyped_storage().data_ptr(): e for e in batch if e.dense}
    found: list[Entering] = []
    unread: list[str] = []
    for place in frontier:
        tensor, name, made_by = place.data, place.operation.name, place.operation.out.grad_fn
        if not tensor.numel():
            continue
        readable = is_plain(tensor) and tensor.layout is torch.strided and not tensor.is_complex()
        if not readable or not tensor.ndim:
            unread.append(name)
            continue
        owner = owners.get(tensor.untyped_storage().data_ptr())
        if owner is not None and owner.tensor.numel() == tensor.numel():
            tensor = owner.tensor.movedim(samples.axis(owner.tensor) or 0, 0)
        else:
            tensor = tensor.movedim(_sample_axis(place, samples.count), 0)
        after = consumers.get(made_by, ())
        normalised = any(n in c for c in after for n in NORMALISING)
        attached = name in ATTACHES and any(c.startswith(MULTIPLIES) for c in after)
        operation, node = ("linear", made_by) if attached else (name, None)
        found.append(Entering(tensor, operation, owner.path if owner else "", place.where, normalised, node))
    return found, unread


def _sample_axis(place: Frontier, samples: int) -> int:
    """The first axis of what enters along which samples lie; they are often repeated for each member of an ensemble."""
    shape, rows = place.data.shape, place.rows
    if rows is not None and rows.ndim == len(shape):
        return next((a for a, n in enumerate(rows.shape) if n > 1), 0)
    return shape.index(samples) if len(shape) > 1 and samples in shape[:-1] else 0
