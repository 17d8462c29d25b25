"""Compares the step's loss with its loss calls: is it a part of them, as where a loss is divided by hand?"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.loop import DividedLoss
from ..evidence.readings import Unseen
from .calls import LossCall
from .hyperparameters import rate_that_scales
from .loss_kinds import BINARY_LOSSES, CLASS_LOSSES
from .moment import Moment
from .observer import Observer, in_samples, is_plain, loss_of
from .run import Run


class DividingWatch(Observer):
    """The loss over the sum of the values of its loss calls, once for each number of accumulated batches."""

    codes = ("WD512",)

    def __init__(self) -> None:
        self._looked: set[int] = set()

    def start(self, run: Run, at: Moment) -> None:
        if not run.automatic or max(run.accumulate, *run.accumulation.values(), 1) < 2:
            at.emit(Unseen(codes=self.codes, reason="the Trainer accumulates nothing", **at.tags()))

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        loss, batches = loss_of(output), at.run.accumulated(at.batch)
        if loss is None or at.stage != "train" or not at.run.automatic or batches < 2 or batches in self._looked:
            return
        self._looked.add(batches)
        with torch._C.DisableTorchFunction():
            self._look(at, loss, batches)

    def _look(self, at: Moment, loss: Tensor, batches: int) -> None:
        run, tags, trace = at.run, at.tags(), at.trace
        calls = [call for call in trace.calls if _is_mean(call)] if trace is not None else []
        if not calls or any(call.value.device != loss.device for call in calls):
            at.emit(Unseen(codes=self.codes, reason="no loss function was called", **tags))
            return
        names, where = tuple(call.name for call in calls), calls[0].where
        scales = math.isfinite(rate_that_scales(run.optimizers)) or run.clip is not None
        sum_of = trace.followers.totals.of(loss) if trace is not None and trace.followers is not None else None
        several = sum_of is not None and sum_of.called and sum_of.terms > 1
        each = sum_of is not None and several and sum_of.terms % batches != 0 and batches in sum_of.divisors

        def read(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
            total, returned = values["losses"].tolist()
            yield DividedLoss(
                accumulate=batches,
                share=returned / total if total else math.nan,
                calls=len(names),
                scale=sum_of.scale if sum_of is not None and several else 1.0,
                weight=sum_of.weight if sum_of is not None else 1.0,
                each=each,
                classifies=all(name in (*CLASS_LOSSES, *BINARY_LOSSES) for name in names),
                scales=scales,
                where=where,
                **tags,
            )

        total = torch.stack([call.value.detach().float().reshape(()) for call in calls]).sum()
        at.ask({"losses": torch.stack([total, loss.detach().float().reshape(())])}, read)


def _is_mean(call: LossCall) -> bool:
    value = call.value
    return is_plain(value) and value.numel() == 1 and value.requires_grad and call.arguments.get("reduction") != "sum"
