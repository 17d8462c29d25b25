"""The loop around the loss: steps that update nothing, metrics that mix stages, graphs that are kept alive.

    python examples/loop.py --fault forgotten-return      the alert, ranked first: WD506
    python examples/loop.py --fixed forgotten-return      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
import torchmetrics
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "forgotten-return": ("WD506", "training_step does not return the loss"),
    "no-optimizer-step": ("WD506", "manual optimisation without optimizer.step()"),
    "shared-metric": ("WD507", "one accuracy object counts training and validation batches together"),
    "growing-list": ("WD509", "losses are collected in a list, each with its graph"),
    "divided-by-hand": ("WD512", "the loss is divided by accumulate_grad_batches, which Lightning does as well"),
}


class Digits(L.LightningModule):
    """Two layers, an accuracy per stage, and a list of losses."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.automatic_optimization = not case.about("no-optimizer-step")
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        self.val_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        if case.broken("shared-metric"):
            self.val_accuracy = self.accuracy
        self.losses: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor | None:
        images, labels = batch
        scores = self.net(images)
        loss = F.cross_entropy(scores, labels)
        self.accuracy.update(scores, labels)
        self.losses.append(loss if self.case.broken("growing-list") else loss.detach())
        if not self.automatic_optimization:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            if not self.case.broken("no-optimizer-step"):
                optimizer.step()
        if self.case.broken("divided-by-hand"):
            loss = loss / self.trainer.accumulate_grad_batches
        return None if self.case.broken("forgotten-return") else loss

    def on_train_epoch_end(self) -> None:
        self.log("train/accuracy", self.accuracy.compute())
        self.accuracy.reset()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        self.val_accuracy.update(self.net(images), labels)

    def on_validation_epoch_end(self) -> None:
        self.log("val/accuracy", self.val_accuracy.compute())
        if not self.case.broken("shared-metric"):
            self.val_accuracy.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.case.about("divided-by-hand"):
            return torch.optim.SGD(self.parameters(), lr=0.1)
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    train, val = batches(images[:1500], labels[:1500]), batches(images[1500:], labels[1500:], shuffle=False)
    accumulate = 4 if case.about("divided-by-hand") else 1
    return fit(case, Digits(case), train, val, max_steps=-1, max_epochs=2, accumulate_grad_batches=accumulate)


if __name__ == "__main__":
    main()
