"""What the statistics of a parameter do not show: equal units, masks beside it, its smallest magnitudes."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from .strided import measurable

ROWS = 8
"""Rows compared to find out whether all units of a matrix are equal."""


def equal_rows(parameter: Tensor) -> Tensor | None:
    """Are the first rows of a matrix the same? One bool on its device; None for what has no rows to compare."""
    values = measurable(parameter)
    if not isinstance(values, Tensor) or values.ndim < 2 or values.shape[0] < 2:
        return None
    return (values[:ROWS] == values[:1]).all()


def has_mask(owner: nn.Module | None, parameter: Tensor) -> bool:
    """Does the module that registered ``parameter`` hold another tensor of its shape, as pruning leaves it?"""
    if owner is None:
        return False
    tensors = [*owner.buffers(), *(v for v in vars(owner).values() if isinstance(v, Tensor))]
    return any(t.shape == parameter.shape for t in tensors)


def smallest(samples: Mapping[str, Tensor]) -> Iterator[tuple[list[str], Tensor]]:
    """Smallest magnitude but zero of each sample, as ``(names, (P,) float32)`` per device; inf where all are zero."""
    devices: dict[torch.device, list[str]] = {}
    for name, values in samples.items():
        devices.setdefault(values.device, []).append(name)
    for device, names in devices.items():
        packed = torch.cat([samples[n].float() for n in names]).abs_()
        least = torch.full((len(names),), torch.inf, dtype=torch.float32, device=device)
        yield (
            names,
            least.scatter_reduce_(0, row_numbers(samples, names), packed.masked_fill_(packed == 0, torch.inf), "amin"),
        )


def row_numbers(samples: Mapping[str, Tensor], names: list[str]) -> Tensor:
    """Which of ``names`` each element of their joined samples belongs to, ``(N,)``; waits for nothing."""
    device = samples[names[0]].device
    sizes = [samples[n].numel() for n in names]
    counts = torch.tensor(sizes).to(device, non_blocking=True)
    return torch.repeat_interleave(torch.arange(len(names), device=device), counts, output_size=sum(sizes))


def stacked(flags: Mapping[str, Tensor]) -> Iterator[tuple[list[str], Tensor]]:
    """Scalar tensors joined per device, as ``(names, (N,) tensor)``."""
    devices: dict[torch.device, list[str]] = {}
    for name, flag in flags.items():
        devices.setdefault(flag.device, []).append(name)
    for names in devices.values():
        yield names, torch.stack([flags[n] for n in names])
