"""Class weights of loss calls, or by which their values are multiplied, beside the labels that come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import WeightedRandomSampler

from ..evidence.base import Evidence
from ..evidence.readings import Unseen
from ..evidence.targets import ClassWeights
from .calls import LossCall
from .expected import class_counts
from .loss_kinds import LABELS
from .moment import Moment
from .observer import Observer, in_samples, is_plain
from .run import Run

WEIGHTED = ("cross_entropy", "nll_loss")
MOST_CLASSES, MOST_LABELS = 1000, 4096
"""Weights of a call that are compared, and labels of a step that are counted, evenly picked."""
LINES = 4
"""Loss calls that are followed."""


@dataclass
class _Seen:
    """Labels of one call so far, by class; by column those that are 1 and those that are not."""

    counts: list[float]
    others: list[float]


class WeightingWatch(Observer):
    """Counts labels at the samples, as long as the weights stay the same."""

    codes = ("WD113",)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, tuple[float, ...]], _Seen] = {}
        self._by_hand: dict[str, Tensor] = {}
        self._judged = True

    def start(self, run: Run, at: Moment) -> None:
        if any(isinstance(getattr(loader, "sampler", None), WeightedRandomSampler) for loader in run.loaders):
            self._judged = False
            at.emit(Unseen(codes=self.codes, reason="weights may undo those of a sampler", **at.tags()))

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        for call in at.trace.calls if self._judged and at.trace is not None and at.stage == "train" else ():
            if call.error or call.traced or not isinstance(call.target, Tensor) or not is_plain(call.target):
                continue
            if call.name in WEIGHTED:
                self._by_class(at, call)
            elif call.name == "binary_cross_entropy_with_logits":
                self._by_column(at, call)

    def _by_class(self, at: Moment, call: LossCall) -> None:
        weight: Any = call.arguments.get("weight")
        if weight is None:
            if call.weights is not None and is_plain(call.weights) and len(self._by_hand) < LINES:
                self._by_hand.setdefault(call.where, call.weights.detach().clone())
            weight = self._by_hand.get(call.where)
        target = call.target
        if not is_plain(weight) or target.dtype not in LABELS or not 1 < weight.numel() <= MOST_CLASSES:
            return
        with torch.no_grad():
            labels = target.reshape(-1).long()
            labels = labels[:: max(1, len(labels) // MOST_LABELS)]
            ignored = labels == call.arguments.get("ignore_index", -100)
            counts = class_counts(torch.where(ignored, weight.numel(), labels), weight.numel())
        self._ask(at, call, weight, counts, torch.zeros_like(counts))

    def _by_column(self, at: Moment, call: LossCall) -> None:
        weight: Any = call.arguments.get("pos_weight")
        target = call.target
        if not is_plain(weight) or not target.ndim or not target.numel():
            return
        columns = weight.numel()
        with torch.no_grad():
            if columns == 1:
                rows = target.reshape(-1, 1)
            elif target.ndim == 2 and target.shape[1] == columns <= MOST_CLASSES:
                rows = target
            else:
                return
            rows = rows[:: max(1, len(rows) // MOST_LABELS)]
            yes = (rows == 1).sum(0).float()
        self._ask(at, call, weight, yes, len(rows) - yes)

    def _ask(self, at: Moment, call: LossCall, weight: Tensor, counts: Tensor, others: Tensor) -> None:
        tags, where, function, columns = at.tags(), call.where, call.name, call.name not in WEIGHTED

        def read(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
            weights, fresh, rest = (values[name].tolist() for name in ("weights", "counts", "others"))
            key = where, tuple(weights)
            if key not in self._seen and len(self._seen) == LINES:
                return
            seen = self._seen.setdefault(key, _Seen([0.0] * len(fresh), [0.0] * len(fresh)))
            seen.counts = [a + b for a, b in zip(seen.counts, fresh, strict=True)]
            seen.others = [a + b for a, b in zip(seen.others, rest, strict=True)]
            yield ClassWeights(
                function=function,
                where=where,
                weights=tuple(weights),
                counts=tuple(seen.counts),
                others=tuple(seen.others) if columns else (),
                **tags,
            )

        given = weight.detach().reshape(-1).float().to(counts.device)
        at.ask({"weights": given, "counts": counts, "others": others}, read)
