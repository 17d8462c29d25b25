"""Saves the batches at which a run went wrong. Only where it is asked for."""

import math
import os
import statistics
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from ..evidence.base import Evidence
from ..evidence.readings import Vital
from .moment import Moment
from .observer import Observer, every_step
from .run import Run

HELD = 8
"""Batches that may wait until their loss has arrived on the host."""
SAVED = 4
"""Batches saved in one fit."""
BEFORE, RECENT = 20, 64
"""Losses that must have been seen before one can be a spike; losses that its median is taken of."""
MEDIAN, HIGHEST = 10.0, 3.0
"""A spike exceeds the median of recent losses, and the highest so far, by these factors: as ``WD143`` has it."""


@dataclass(frozen=True)
class Held:
    """A batch whose loss is on its way."""

    batch: Any
    step: int
    epoch: int


class BatchKeeper(Observer):
    """Reads every batch's loss without waiting for it, and writes the batch to disk where that is not finite or a
    spike. Holds the last few batches for it, and transfers one number per batch.
    """

    codes = ("WD121", "WD142", "WD143")

    def __init__(self) -> None:
        self._run: Run | None = None
        self._held: dict[int, Held] = {}
        self._losses: deque[float] = deque(maxlen=RECENT)
        self._highest = 0.0
        self._seen = 0
        self._paths: list[str] = []

    def start(self, run: Run, at: Moment) -> None:
        self._run = run if run.batches else None

    def looks_between(self, run: Run, moment: str) -> bool:
        return self._run is not None

    @every_step
    def batch(self, at: Moment, batch: Any) -> None:
        if self._run is not None and len(self._paths) < SAVED:
            self._held[at.batch] = Held(batch, at.step, at.epoch)
            while len(self._held) > HELD:
                del self._held[next(iter(self._held))]

    @every_step
    def batch_end(self, at: Moment, output: Any) -> None:
        if at.batch not in self._held:
            return
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if isinstance(loss, Tensor) and loss.numel() == 1:
            at.ask({"loss": loss.detach()}, partial(self._judge, at.batch))
        else:
            del self._held[at.batch]

    def _judge(self, number: int, values: Mapping[str, Tensor]) -> Iterator[Evidence]:
        held, loss = self._held.pop(number, None), float(values["loss"])
        reason = "" if math.isfinite(loss) else "non-finite-loss"
        if not reason and self._spike(loss):
            reason = "loss-spike"
        if math.isfinite(loss):
            self._losses.append(loss)
            self._highest = max(self._highest, loss)
            self._seen += 1
        if held is None or not reason or self._run is None or len(self._paths) >= SAVED:
            return
        try:
            self._paths.append(_save(self._run, held, number, loss, reason))
            text = f"{len(self._paths)} of the batches that went wrong saved in {self._run.batches}"
        except Exception as error:  # noqa: BLE001
            self._held.clear()
            self._run = None
            text = f"the batch of step {held.step} ({reason}) could not be saved: {type(error).__name__}: {error}"
        yield Vital(key="batches", text=text, step=held.step, epoch=held.epoch)

    def _spike(self, loss: float) -> bool:
        if self._seen < BEFORE or min(self._losses) <= 0:
            return False
        return loss > MEDIAN * statistics.median(self._losses) and loss > HIGHEST * self._highest


def _save(run: Run, held: Held, number: int, loss: float, reason: str) -> str:
    os.makedirs(run.batches, exist_ok=True)
    rank = f".rank{run.rank}" if run.rank else ""
    path = os.path.join(run.batches, f"step-{held.step}-{reason}{rank}.pt")
    torch.save(
        {
            "batch": held.batch,
            "reason": reason,
            "loss": loss,
            "step": held.step,
            "epoch": held.epoch,
            "batch_number": number,
            "indices": indices(run, number),
        },
        path,
    )
    return path


def indices(run: Run, number: int) -> list[int] | None:
    """Places in the dataset of the samples of the fit's batch ``number``.

    None where the sampler does not know them any more: a random one has forgotten what it drew.
    """
    if len(run.loaders) != 1 or not math.isfinite(run.batches_per_epoch) or run.batches_per_epoch < 1:
        return None
    number %= int(run.batches_per_epoch)
    batches = getattr(run.loaders[0], "batch_sampler", None)
    if isinstance(batches, list | tuple):
        return list(batches[number]) if number < len(batches) else None
    sampler, size = getattr(batches, "sampler", None), getattr(batches, "batch_size", None)
    known = type(sampler) in (SequentialSampler, DistributedSampler) or isinstance(sampler, list | tuple | range)
    if sampler is None or not known or not isinstance(size, int):
        return None
    return list(islice(sampler, number * size, (number + 1) * size))
