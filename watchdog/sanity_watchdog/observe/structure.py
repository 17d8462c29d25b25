"""What the statistics of a parameter do not show: equal units, masks beside it."""

from collections.abc import Container, Iterator, Mapping
from itertools import islice

import torch
from torch import Tensor, nn

from .observer import is_plain
from .strided import measurable

ROWS = 8
"""Rows compared to find out whether all units of a matrix are equal."""
MASKS = 64
"""Tensors that may be masks which are looked at, once."""


def equal_rows(parameter: Tensor) -> Tensor | None:
    """Are the first rows of a matrix the same? One bool on its device; None for what has no rows to compare."""
    values = measurable(parameter)
    if not isinstance(values, Tensor) or values.ndim < 2 or values.shape[0] < 2:
        return None
    return (values[:ROWS] == values[:1]).all()


def has_mask(owner: nn.Module | None, parameter: Tensor, switches: Container[torch.Size]) -> bool:
    """Is there a mask for ``parameter``: its shape among ``switches``, or in its module, as pruning leaves it?"""
    if owner is None:
        return False
    held = (*vars(owner).values(), *(b for part in owner.modules() for b in part._buffers.values()))
    return parameter.shape in switches or any(isinstance(t, Tensor) and t.shape == parameter.shape for t in held)


def switches(module: nn.Module) -> set[torch.Size]:
    """Shapes of matrices for which ``module`` or a part of it holds truth values, or zeros and ones."""
    shapes = {p.shape for p in module.parameters() if p.ndim > 1}
    held = (v for part in module.modules() for v in (*part._buffers.values(), *vars(part).values()))
    alike = (t for t in held if isinstance(t, Tensor) and not isinstance(t, nn.Parameter) and t.shape in shapes)
    return {t.shape for t in islice(alike, MASKS) if is_plain(t) and bool(_switches(t.detach()))}


def _switches(values: Tensor) -> Tensor:
    off, on = values == 0, values == 1
    return (off | on).all() & off.any() & on.any()


def is_pruned(owner: nn.Module | None, name: str) -> bool:
    """Does ``torch.nn.utils.prune`` mask the parameter that had this name before?"""
    own = name.rpartition(".")[2].removesuffix("_orig")
    return owner is not None and f"{own}_mask" in owner._buffers and f"{own}_orig" in owner._parameters


def stacked(flags: Mapping[str, Tensor]) -> Iterator[tuple[list[str], Tensor]]:
    """Scalar tensors joined per device, as ``(names, (N,) tensor)``."""
    devices: dict[torch.device, list[str]] = {}
    for name, flag in flags.items():
        devices.setdefault(flag.device, []).append(name)
    for names in devices.values():
        yield names, torch.stack([flags[n] for n in names])
