"""One transfer from the device to the host for everything that a sample measured."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Entry:
    """Where a tensor goes: which ``put`` it came with, its name and its shape."""

    put: int
    name: str
    shape: torch.Size


@dataclass(frozen=True)
class _Sent:
    """What one copy to the host holds: per dtype, the widest first, the entries in order."""

    host: Tensor
    event: torch.cuda.Event | None
    blocks: list[tuple[torch.dtype, list[_Entry]]]


class Packet:
    """Small tensors of any dtype and device, joined byte by byte, sent once and read later.

    ``put`` and ``send`` never wait for a device. ``read`` does where the copy has not arrived, so it is called at the
    next sample (or at once in the first step, which may wait).
    """

    def __init__(self) -> None:
        self._puts = 0
        self._waiting: list[tuple[_Entry, Tensor]] = []
        self._sent: list[_Sent] = []

    def __len__(self) -> int:
        return self._puts

    def put(self, tensors: Mapping[str, Tensor]) -> int:
        """Queue named tensors, unchanged until ``send``; returns their place in ``read``."""
        for name, tensor in tensors.items():
            value = tensor.detach() if tensor.requires_grad else tensor
            self._waiting.append((_Entry(self._puts, name, tensor.shape), value))
        self._puts += 1
        return self._puts - 1

    def send(self) -> None:
        """Start the copy to the host of what was put since the last ``send``."""
        groups: dict[torch.device, dict[torch.dtype, list[tuple[_Entry, Tensor]]]] = {}
        for entry, tensor in self._waiting:
            groups.setdefault(tensor.device, {}).setdefault(tensor.dtype, []).append((entry, tensor))
        self._waiting = []
        for kinds in groups.values():
            ordered = sorted(kinds.items(), key=lambda kind: -kind[0].itemsize)  # so that every block is aligned
            blocks = [(dtype, [entry for entry, _ in group]) for dtype, group in ordered]
            flat = [torch.cat([t if t.ndim == 1 else t.reshape(-1) for _, t in group]) for _, group in ordered]
            joined = flat[0] if len(flat) == 1 else torch.cat([f.view(torch.uint8) for f in flat])
            self._sent.append(_Sent(*_copied(joined.view(torch.uint8)), blocks))

    def arrived(self) -> bool:
        """Could everything be read without waiting?"""
        events = (sent.event for sent in self._sent)
        return all(bool(event.query()) for event in events if event is not None)  # type: ignore[no-untyped-call]

    def read(self) -> list[dict[str, Tensor]]:
        """CPU tensors by entry and name. Sends first where that has not been done."""
        self.send()
        out: list[dict[str, Tensor]] = [{} for _ in range(self._puts)]
        for sent in self._sent:
            if sent.event is not None:
                sent.event.synchronize()
            start = 0
            for dtype, entries in sent.blocks:
                sizes = [entry.shape.numel() for entry in entries]
                end = start + sum(sizes) * dtype.itemsize
                values = sent.host[start:end].view(dtype) if end > start else torch.empty(0, dtype=dtype)
                start = end
                for entry, part in zip(entries, values.split_with_sizes(sizes), strict=True):
                    out[entry.put][entry.name] = part if len(entry.shape) == 1 else part.view(entry.shape)
        return out


def _copied(values: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """The bytes on the host, and what tells that they have arrived."""
    if values.device.type != "cuda":
        return values.to("cpu"), None
    host = torch.empty(values.shape, dtype=torch.uint8, pin_memory=True)
    host.copy_(values, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(values.device))
    return host, event
