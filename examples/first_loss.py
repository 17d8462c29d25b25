"""The first loss is known before training: ln 10 = 2.303 for ten classes. What makes it something else.

    python examples/first_loss.py --fault hot-head      the alert, ranked first: WD101
    python examples/first_loss.py --fixed hot-head      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "hot-head": ("WD101", "the weights of the last layer start with a deviation of 1"),
    "summed-loss": ("WD101", "the loss is summed over the batch, so the learning rate depends on the batch size"),
    "scaled-scores": ("WD101", "scores are divided by a temperature of 0.02 from the first step"),
    "thousand-outputs": ("WD106", "the head of a network for 1,000 classes was kept for ten"),
}


class Digits(L.LightningModule):
    """A CNN for ten classes."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        outputs = 1000 if case.broken("thousand-outputs") else 10
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, outputs)
        )
        if case.about("hot-head"):
            nn.init.normal_(self.net[-1].weight, std=1.0 if case.broken("hot-head") else 0.02)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        scores = self.net(images)
        if self.case.broken("scaled-scores"):
            scores = scores / 0.02
        return F.cross_entropy(scores, labels, reduction="sum" if self.case.broken("summed-loss") else "mean")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()))


if __name__ == "__main__":
    main()
