"""Layers in the wrong mode: dropout and batch statistics that do not do what they were put there for.

    python examples/modes.py --fault left-in-eval      the alert, ranked first: WD504
    python examples/modes.py --fixed left-in-eval      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "left-in-eval": ("WD504", "a sample is drawn in eval mode in each step, and nobody calls train() again"),
    "keep-for-drop": ("WD505", "Dropout(0.95): the share to keep was meant"),
    "dropout-in-validation": ("WD505", "F.dropout without training=self.training is active in validation"),
    "frozen-statistics": ("WD508", "BatchNorm with a momentum of 1e-6: the statistics never follow the data"),
}


class Digits(L.LightningModule):
    """A CNN with BatchNorm and dropout."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16, momentum=1e-6 if case.broken("frozen-statistics") else 0.1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.95 if case.broken("keep-for-drop") else 0.05),
        )
        self.head = nn.Linear(16 * 4 * 4, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)
        if self.case.about("dropout-in-validation"):
            features = F.dropout(features, 0.2, training=self.case.broken("dropout-in-validation") or self.training)
        return self.head(features)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        self.log("val/loss", F.cross_entropy(self(images), labels))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.case.about("left-in-eval"):
            self.eval()
            with torch.no_grad():
                self(batch[0][:1])
            self.train(not self.case.broken("left-in-eval"))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    return fit(
        case,
        Digits(case),
        batches(images[:1500], labels[:1500]),
        batches(images[1500:], labels[1500:], shuffle=False),
        max_steps=90 if case.about("frozen-statistics") else 45,
    )


if __name__ == "__main__":
    main()
