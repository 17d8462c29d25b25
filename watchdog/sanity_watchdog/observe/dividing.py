"""Compares the step's loss with its loss calls: is it a part of them, as where a loss is divided by hand?"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.loop import DividedLoss
from ..evidence.readings import Unseen
from .calls import LossCall
from .first_loss import FirstLossObserver
from .hyperparameters import rate_that_scales
from .loss_statistics import BINARY_LOSSES, CLASS_LOSSES
from .moment import Moment
from .observer import is_plain
from .run import Run


class DividingWatch(FirstLossObserver):
    """The first loss over the sum of the values of its loss calls."""

    codes = ("WD512",)

    def start(self, run: Run, at: Moment) -> None:
        if not run.automatic or run.accumulate < 2:
            at.emit(Unseen(codes=self.codes, reason="the Trainer accumulates nothing", **at.tags()))

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        run, tags = at.run, at.tags()
        if not run.automatic or run.accumulate < 2:
            return
        calls = [call for call in at.trace.calls if _is_mean(call)] if at.trace is not None else []
        if not calls or any(call.value.device != loss.device for call in calls):
            at.emit(Unseen(codes=self.codes, reason="no loss function was called", **tags))
            return
        names, where = tuple(call.name for call in calls), calls[0].where
        scales = math.isfinite(rate_that_scales(run.optimizers)) or run.clip is not None

        def read(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
            total, returned = values["losses"].tolist()
            yield DividedLoss(
                accumulate=run.accumulate,
                share=returned / total if total else math.nan,
                calls=len(names),
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
