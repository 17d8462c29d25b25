"""The run as observers know it: what the Trainer was asked for, without the Trainer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Schedule:
    """One learning-rate schedule and when the loop advances it."""

    scheduler: Any
    interval: str = "epoch"
    frequency: int = 1
    monitor: str | None = None
    optimizer: int = 0


@dataclass(frozen=True)
class Run:
    """What is fixed when the first step begins.

    Attributes:
        module: the LightningModule that trains (the original one, not a wrapper of a strategy).
        wrapper: what the strategy put around the module, such as DistributedDataParallel; None for nothing.
        optimizers: the torch optimizers, in order.
        schedules: the schedules with the interval that the loop uses.
        precision: precision in use, as the plugin calls it, such as ``"16-mixed"``.
        asked: precision as the user wrote it; empty where a plugin was given or it could not be learnt.
        plugin: Lightning's precision plugin.
        scaler: the loss scaler of the plugin, or of the user's module in manual optimisation.
        accelerator: ``cpu``, ``cuda``, ``mps``, ``tpu``, …
        device: root device.
        strategy: class name of the strategy.
        averages: does the strategy average weights now and then, instead of every gradient?
        unused_stops: will DistributedDataParallel stop at a parameter without a gradient?
        world: number of processes. rank: this one.
        automatic: automatic optimisation?
        accumulate: batches per optimizer step, at first.
        accumulation: the same from each of these epochs on, where it changes.
        thaws: is there a callback that freezes parameters at first and gives them to the optimizers later?
        phased: does the step ask for the number of the step or the epoch, as one does whose parts join in later?
        epoch: in which the fit begins.
        clip: ``(value, algorithm)`` or None.
        max_steps, max_epochs: limits of the fit, -1 for none.
        batches_per_epoch: training batches per epoch, ``inf`` for streams of unknown length.
        resumed: continues from a checkpoint?
        loaders: training dataloaders, flattened. validation_loaders: likewise.
        changes_batches: may the module or its data module give batches another shape after they were loaded?
        targets: other accelerators to judge for.
        num_classes, expected_loss: the callback's own arguments, only where no loss call can be read.
        every_n_steps: sampling interval.
        batches: folder for the batches at which the run went wrong; empty where none are kept.
    """

    module: nn.Module
    wrapper: nn.Module | None = None
    optimizers: tuple[Optimizer, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    precision: str = "32-true"
    asked: str = ""
    plugin: Any = None
    scaler: Any = None
    accelerator: str = "cpu"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    strategy: str = "SingleDeviceStrategy"
    averages: bool = False
    unused_stops: bool = False
    world: int = 1
    rank: int = 0
    automatic: bool = True
    accumulate: int = 1
    accumulation: Mapping[int, int] = field(default_factory=dict)
    thaws: bool = False
    phased: bool = False
    epoch: int = 0
    clip: tuple[float, str] | None = None
    max_steps: int = -1
    max_epochs: int = -1
    batches_per_epoch: float = float("inf")
    resumed: bool = False
    loaders: tuple[Any, ...] = ()
    validation_loaders: tuple[Any, ...] = ()
    changes_batches: bool = False
    targets: tuple[str, ...] = ()
    num_classes: int | None = None
    expected_loss: float | None = None
    every_n_steps: int = 101
    batches: str = ""

    def accumulated(self, batch: int) -> int:
        """Batches per optimizer step at this batch of the fit."""
        within = batch // self.batches_per_epoch if 0 < self.batches_per_epoch < math.inf else 0
        begun = [epoch for epoch in self.accumulation if epoch <= self.epoch + within]
        return self.accumulation[max(begun)] if begun else self.accumulate
