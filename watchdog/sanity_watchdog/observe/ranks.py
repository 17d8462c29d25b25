"""Fingerprints of replicas: exact, on the device, a few hundred integers whatever the size of the model."""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..evidence.base import Evidence
from ..evidence.ranks import RankPrint
from .batches import elements, size_of
from .fingerprints import fingerprint
from .moment import Moment
from .names import plain_name
from .observer import Observer, in_samples, is_plain

GROUPS = 128
"""Parameters are fingerprinted in at most this many groups, so that a message stays under 3 KiB."""
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
PER_RANK_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""BatchNorm statistics differ between replicas by design unless they are synchronised."""


def bits(tensor: Tensor) -> Tensor:
    """A scalar int64 that depends on every bit of ``tensor`` and on where it stands, with no rounding."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    whole = flat if flat.dtype is torch.bool else flat.view(INTEGERS[flat.element_size()])
    total = whole.sum(dtype=torch.int64)
    return total * 0x9E3779B1 + whole[::3].sum(dtype=torch.int64)


def fold(tensors: list[Tensor]) -> Tensor:
    """One integer for several tensors of a group, in order."""
    total = bits(tensors[0])
    for tensor in tensors[1:]:
        total = total * 31 + bits(tensor).to(total.device)
    return total


def grouped(named: Iterable[tuple[str, Tensor]]) -> tuple[list[str], list[list[Tensor]]]:
    """Consecutive tensors in at most ``GROUPS`` groups; each is called by its first name."""
    usable = [(plain_name(n), t) for n, t in named if is_plain(t) and t.numel() and t.layout is torch.strided]
    size = max(1, -(-len(usable) // GROUPS))
    groups = [usable[i : i + size] for i in range(0, len(usable), size)]
    return [g[0][0] for g in groups], [[t for _, t in g] for g in groups]


def sharding(module: nn.Module, strategy: str) -> str:
    """Why ranks need not hold equal parameters; empty where they must."""
    if any(word in strategy for word in ("FSDP", "DeepSpeed", "ModelParallel", "Sharded")):
        return f"{strategy} shards the parameters"
    if any(type(p) not in (Tensor, nn.Parameter) for p in module.parameters()):
        return "parameters are sharded"
    return ""


def comparable_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Buffers that replicas should agree on: all but the statistics of unsynchronised BatchNorm."""
    return [
        (name, b)
        for name, b in module.named_buffers()
        if name.rpartition(".")[2] not in PER_RANK_BUFFERS and is_plain(b) and b.layout is torch.strided
    ]


class Ranks(Observer):
    """Measures what rank zero compares; does nothing in a single process."""

    codes = ("WD6",)

    def __init__(self) -> None:
        self._batch: tuple[dict[str, Tensor], int] = ({}, 0)

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if at.run.world > 1:
            self._batch = fingerprint(elements(batch)), size_of(batch)

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        if at.run.world < 2:
            return
        (probes, samples), self._batch = self._batch, ({}, 0)
        module, run = at.run.module, at.run
        parameters = [] if sharding(module, run.strategy) else grouped(module.named_parameters())[1]
        buffers = [] if sharding(module, run.strategy) else grouped(comparable_buffers(module))[1]
        with torch.no_grad():
            device = run.device
            asked = {
                "parameters": torch.stack([fold(g).to(device) for g in parameters]) if parameters else _none(device),
                "buffers": torch.stack([fold(g).to(device) for g in buffers]) if buffers else _none(device),
                **{f"batch {k}": v.to(device) for k, v in probes.items()},
            }
        tags, attempt = at.tags(), at.attempt

        def read(values: Mapping[str, Tensor]) -> list[Evidence]:
            raw = b"".join(v.contiguous().view(torch.uint8).numpy().tobytes() for k, v in values.items() if " " in k)
            return [
                RankPrint(
                    **tags,
                    rank=run.rank,
                    attempt=attempt,
                    groups=tuple(values["parameters"].tolist()),
                    buffers=tuple(values["buffers"].tolist()),
                    batch=zlib.crc32(raw) if raw else 0,
                    samples=samples,
                )
            ]

        at.ask(asked, read)


def _none(device: torch.device) -> Tensor:
    return torch.empty(0, dtype=torch.int64, device=device)
