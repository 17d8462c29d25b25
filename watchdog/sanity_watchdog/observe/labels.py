"""The labels of the batch that a classification loss gets: their range, for every batch."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .batches import Element, Step, follow
from .calls import LossCall
from .ledger import Column, Ledger
from .loss_kinds import LABELS
from .observer import is_plain

REMEMBERED = 256


@dataclass
class Labels:
    """Where the labels are, and what their columns showed.

    Attributes:
        path: as the user writes it, empty until a loss call was seen to get them.
        steps: the way there.
        about: fields of ``TargetRange`` that the call told; empty for targets that are no class numbers.
        classes: outputs of the model. one_per_sample: neither pixels nor tokens.
        column: smallest and largest label, once they are recorded.
        counts: number of labels by row of the column; a bag of several samples has a single one.
    """

    path: str = ""
    steps: tuple[Step, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    classes: int = 0
    one_per_sample: bool = False
    column: tuple[Column, Column] | None = None
    counts: list[int] = field(default_factory=list)
    _host: Tensor | None = None
    _ranges: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _low: float = float("inf")
    _high: float = float("-inf")

    def found(self, element: Element, call: LossCall, classes: int) -> None:
        """``element`` is what ``call`` got as its labels."""
        if self.path:
            return
        self.path, self.steps, self.classes = element.path, element.steps, classes
        target, scores = call.target, call.input
        self.one_per_sample = target.ndim > 0 and target.numel() == len(target)
        if call.name in ("cross_entropy", "nll_loss") and not element.tensor.is_floating_point():
            self.about = {
                "function": call.name,
                "where": call.where,
                "classes": classes,
                "ignore_index": call.arguments.get("ignore_index", -100),
                "reduction": str(call.arguments.get("reduction", "mean")),
                "dtype": str(target.dtype).removeprefix("torch."),
                "shape": tuple(target.shape),
                "input_shape": tuple(scores.shape),
                "whole_samples": self.one_per_sample,
            }

    @property
    def wanted(self) -> bool:
        """Are the labels known, and not recorded yet?"""
        return bool(self.path) and self.column is None

    def open(self, ledger: Ledger, batch: Any, row: int, number: int) -> None:
        """Record from this batch on."""
        tensor = follow(batch, self.steps)
        if tensor is not None:
            low = ledger.column("label low", tensor.dtype, tensor.device)
            self.column = low, ledger.column("label high", tensor.dtype, tensor.device)
            self.counts = [0] * ledger.rows
            if tensor.device.type == "cuda":
                self._host = torch.empty(2, ledger.rows, dtype=tensor.dtype, pin_memory=True)
            self.note(batch, row, number)

    def note(self, batch: Any, row: int, number: int) -> None:
        """Queue the range of this batch's labels."""
        if self.column is None:
            return
        low, high = self.column
        tensor = follow(batch, self.steps)
        if tensor is None or tensor.dtype is not low.values.dtype or tensor.requires_grad:
            return
        if tensor.numel() and tensor.device == low.values.device:
            torch.aminmax(tensor, out=(low.slots[row], high.slots[row]))
            low.filled[row] = high.filled[row] = number
            self.counts[row] = tensor.numel()
            if self._host is not None:  # survives a device that an assertion has stopped
                self._host[0, row].copy_(low.slots[row], non_blocking=True)
                self._host[1, row].copy_(high.slots[row], non_blocking=True)

    # -- on the host

    def remember(self, number: int, low: float, high: float) -> None:
        """The range of a batch has been read."""
        self._ranges.append((number, low, high))
        self._low, self._high = min(self._low, low), max(self._high, high)

    def all_ignored(self, number: int) -> bool:
        """Did every label of that batch equal ``ignore_index``?"""
        ignored = self.about.get("ignore_index")
        return any(b == number and low == high == ignored for b, low, high in self._ranges)

    def extremes(self) -> Mapping[str, Any] | None:
        """Fields of ``TargetRange`` for all labels so far; None where nothing is known of them."""
        return self._range(self._low, self._high) if self._ranges else None

    def current(self, batch: Any, number: int) -> Mapping[str, Any] | None:
        """The same for this batch alone; reads the device, or what came from it before it stopped."""
        if self._host is not None and self.column is not None:
            row = number % self._host.shape[1]
            known = self.column[0].filled[row] == number
            return self._range(float(self._host[0, row]), float(self._host[1, row])) if known else None
        tensor = follow(batch, self.steps) if self.about and batch is not None else None
        if not isinstance(tensor, Tensor) or not tensor.numel():
            return None
        low, high = torch.aminmax(tensor.detach())
        return self._range(float(low), float(high))

    def _range(self, low: float, high: float) -> Mapping[str, Any] | None:
        ignored = self.about.get("ignore_index")
        if not self.about or low == high == ignored:
            return None
        return {**self.about, "low": high if low == ignored else low, "high": low if high == ignored else high}


def asserts_later(target: Any) -> bool:
    """Are these labels that a kernel checks, so that the host learns of it too late?"""
    return isinstance(target, Tensor) and is_plain(target) and target.dtype in LABELS and target.device.type != "cpu"
