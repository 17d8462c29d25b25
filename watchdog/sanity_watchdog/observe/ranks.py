"""Fingerprints of replicas: exact, on the device, a few hundred integers whatever the size of the model."""

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.ranks import RankPrint
from .batches import Samples, elements
from .fingerprints import fingerprint
from .holding import ids_held_by
from .moment import Moment
from .names import plain_name
from .observer import Observer, in_samples, is_plain
from .sharding import local, sharding, squares
from .strided import sample

GROUPS = 128
"""Parameters are fingerprinted in at most this many groups, so that a message stays under 3 KiB."""
SAMPLED = 64
"""Elements of each gradient that tell whether it was averaged: one that was not differs everywhere."""
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


def comparable_buffers(module: nn.Module, wrapper: nn.Module | None) -> list[tuple[str, Tensor]]:
    """Buffers that replicas should agree on: all but the statistics of unsynchronised BatchNorm, and none where the
    wrapper broadcasts rank zero's before each step."""
    if getattr(wrapper, "broadcast_buffers", False):
        return []
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
        self._state = b""
        self._noise = 0
        self._drawn_at = ""
        self._gradients: Tensor | None = None
        self._squares: Tensor | None = None
        self._stepped = False

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if at.run.world > 1:
            self._batch = fingerprint(elements(batch)), Samples(batch).count
            self._state, self._noise = generators(at.run.device), 0
            self._gradients = self._squares = None
            self._stepped = False

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if at.run.world > 1 and at.stage == "train":
            if at.trace is not None and at.trace.drawn_at:
                self._drawn_at = at.trace.drawn_at
            state = generators(at.run.device)
            self._noise = zlib.crc32(state) if self._drawn_at and state != self._state else 0

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        run = at.run
        if run.world < 2:
            return
        self._stepped = True
        held = ids_held_by(optimizer)
        with torch.no_grad():
            if sharding(run.module, run.strategy):
                mine = [p.grad for p in run.module.parameters() if id(p) in held and p.grad is not None]
                told = run.scaler is None and any(local(g) is not g for g in mine)  # flat parts tell no placement
                found = squares(mine, run.world) if told else None
                self._squares = found if self._squares is None or found is None else self._squares + found
            else:
                groups = grouped(run.module.named_parameters())[1]
                new = torch.stack([sampled_bits([p for p in g if id(p) in held], run.device) for g in groups])
                self._gradients = new if self._gradients is None else self._gradients * 31 + new

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        if not self._stepped:  # ranks may skip batches on their own: their steps are what can be compared
            return
        (probes, samples), self._batch = self._batch, ({}, 0)
        module, run = at.run.module, at.run
        apart = bool(sharding(module, run.strategy))
        device, gradients, norm = run.device, self._gradients, self._squares
        with torch.no_grad():
            asked = {
                "parameters": _folded([] if apart else grouped(module.named_parameters())[1], device),
                "buffers": _folded([] if apart else grouped(comparable_buffers(module, run.wrapper))[1], device),
                "gradients": _folded([], device) if gradients is None else gradients,
                "squares": torch.full((), math.nan, device=device) if norm is None else norm.to(device),
                **{f"batch {k}": v.to(device) for k, v in probes.items()},
            }
        tags, attempt, noise, drawn_at = at.tags(), at.attempt, self._noise, self._drawn_at

        def read(values: Mapping[str, Tensor]) -> list[Evidence]:
            raw = b"".join(v.contiguous().view(torch.uint8).numpy().tobytes() for k, v in values.items() if " " in k)
            return [
                RankPrint(
                    **tags,
                    rank=run.rank,
                    attempt=attempt,
                    groups=tuple(values["parameters"].tolist()),
                    gradients=tuple(values["gradients"].tolist()),
                    buffers=tuple(values["buffers"].tolist()),
                    batch=zlib.crc32(raw) if raw else 0,
                    samples=samples,
                    noise=noise,
                    drawn_at=drawn_at,
                    squares=float(values["squares"]),
                )
            ]

        at.ask(asked, read)


def generators(device: torch.device) -> bytes:
    """State of the default generators that a step on this device draws from; never waits for the device."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return b"".join(s.numpy().tobytes() for s in states)


def sampled_bits(parameters: list[Tensor], device: torch.device) -> Tensor:
    """A scalar int64 of some elements of the parameters' gradients, equal where those are equal."""
    given = [p.grad for p in parameters if p.grad is not None]
    found = [g for g in given if is_plain(g) and g.numel() and g.layout is torch.strided]
    if not found:
        return torch.zeros((), dtype=torch.int64, device=device)
    some = [sample(torch.view_as_real(g) if g.is_complex() else g, SAMPLED).float().to(device) for g in found]
    return bits(torch.cat(some))


def _folded(groups: list[list[Tensor]], device: torch.device) -> Tensor:
    if not groups:
        return torch.empty(0, dtype=torch.int64, device=device)
    return torch.stack([fold(g).to(device) for g in groups])
