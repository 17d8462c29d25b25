"""One number per batch, kept on the device in a ring until a sample reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

READABLE = (torch.float32, torch.float64, torch.float16)
"""Formats that are looked at where they lie on the host."""


class Column:
    """A ring of ``rows`` numbers on one device; ``slots[i]`` is where row ``i`` goes.

    Attributes:
        values: the ring. slots: a 0-d view of each row, ready to be written by one operator.
        filled: batch whose number a row holds, -1 for none.
    """

    def __init__(self, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        self.values = torch.zeros(rows, dtype=dtype, device=device)
        self.slots = self.values.unbind()
        self.filled = [-1] * rows


@dataclass
class Ledger:
    """Named columns of one length, written once per batch.

    Attributes:
        rows: batches remembered.
        columns: rings by name.
    """

    rows: int
    columns: dict[str, Column] = field(default_factory=dict)

    def column(self, name: str, dtype: torch.dtype, device: torch.device) -> Column:
        """The column of this name, made where it is new."""
        if name not in self.columns:
            self.columns[name] = Column(self.rows, dtype, device)
        return self.columns[name]

    def tensors(self) -> dict[torch.device, dict[str, Tensor]]:
        """All rings by device, to be read back together."""
        by_device: dict[torch.device, dict[str, Tensor]] = {}
        for name, column in self.columns.items():
            by_device.setdefault(column.values.device, {})[name] = column.values
        return by_device

    def filled(self) -> dict[str, tuple[int, ...]]:
        """What the rows hold now, by column: to be taken together with ``tensors``."""
        return {name: tuple(column.filled) for name, column in self.columns.items()}


def unrolled(
    values: Mapping[str, Tensor], filled: Mapping[str, tuple[int, ...]], since: int
) -> dict[str, dict[int, float]]:
    """Per column the numbers of batches after ``since``, by batch, oldest first; ``values`` are on the CPU."""
    out = {}
    for name, ring in values.items():
        rows = zip(filled[name], ring.tolist(), strict=True)
        out[name] = dict(sorted((batch, number) for batch, number in rows if batch > since))
    return out


def number_on_host(value: Tensor) -> float | None:
    """The value of a tensor of one element that lies on the host, where nothing has to be waited for; else None."""
    return value.item() if value.is_cpu and value.dtype in READABLE else None
