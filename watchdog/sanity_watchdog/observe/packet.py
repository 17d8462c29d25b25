"""One transfer from the device to the host for everything that a sample measured."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Packet:
    """Small tensors of any dtype and device, joined byte by byte, sent once and read later.

    ``put`` and ``send`` never wait for a device. ``read`` does where the copy has not arrived, so it is called at the
    next sample (or at once in the first step, which may wait).
    """

    def __init__(self) -> None:
        self._entries: list[tuple[dict[str, tuple[torch.dtype, torch.Size, int]], torch.device]] = []
        self._parts: dict[torch.device, list[Tensor]] = {}
        self._sent: dict[torch.device, list[tuple[Tensor, torch.cuda.Event | None]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, tensors: Mapping[str, Tensor]) -> int:
        """Queue named tensors of one device, unchanged until ``send``; returns their place in ``read``."""
        layout: dict[str, tuple[torch.dtype, torch.Size, int]] = {}
        device = torch.device("cpu")
        for name, tensor in tensors.items():
            device = tensor.device
            flat = tensor.detach().reshape(-1).contiguous()
            raw = flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
            layout[name] = (tensor.dtype, tensor.shape, raw.numel())
            self._parts.setdefault(device, []).append(raw)
        self._entries.append((layout, device))
        return len(self._entries) - 1

    def send(self) -> None:
        """Start the copy to the host of what was put since the last ``send``."""
        for device, parts in self._parts.items():
            joined = torch.cat(parts)
            sent = self._sent.setdefault(device, [])
            if device.type != "cuda":
                sent.append((joined.to("cpu"), None))
                continue
            host = torch.empty(joined.shape, dtype=torch.uint8, pin_memory=True)
            host.copy_(joined, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
            sent.append((host, event))
        self._parts.clear()

    def arrived(self) -> bool:
        """Could everything be read without waiting?"""
        events = (event for sent in self._sent.values() for _, event in sent)
        return all(bool(event.query()) for event in events if event is not None)  # type: ignore[no-untyped-call]

    def read(self) -> list[dict[str, Tensor]]:
        """CPU tensors by entry and name. Sends first where that has not been done."""
        self.send()
        for sent in self._sent.values():
            for _, event in sent:
                if event is not None:
                    event.synchronize()
        host = {device: torch.cat([part for part, _ in sent]) for device, sent in self._sent.items()}
        at = dict.fromkeys(host, 0)
        out = []
        for layout, device in self._entries:
            values = {}
            for name, (dtype, shape, size) in layout.items():
                start = at[device]
                at[device] = start + size
                raw = host[device][start : start + size].clone()  # a copy is aligned for its dtype
                values[name] = raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
            out.append(values)
        return out
