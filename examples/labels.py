"""Labels that are not what the loss takes them for, or that come in an order nothing can be learned from.

    python examples/labels.py --fault labels-from-one      the alert, ranked first: WD105
    python examples/labels.py --fixed labels-from-one      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "labels-from-one": ("WD105", "classes are counted from 1, so the last label has no output"),
    "all-ignored": ("WD105", "a mask made of -100 covers every label"),
    "plus-minus-one": ("WD105", "binary labels are -1 and 1 where the loss wants 0 and 1"),
    "inverted-weights": ("WD113", "classes are weighted by their frequency instead of its inverse"),
    "sorted-by-class": ("WD110", "the files are sorted by class and the loader does not shuffle"),
}


class Classifier(L.LightningModule):
    """Ten classes, or even against odd."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.binary = case.about("plus-minus-one")
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1 if self.binary else 10))
        self.register_buffer("weights", None)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        scores = self.net(images)
        if self.binary:
            return F.binary_cross_entropy_with_logits(scores.squeeze(1), labels)
        return F.cross_entropy(scores, labels, weight=self.weights)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    if case.broken("labels-from-one"):
        labels = labels + 1
    if case.broken("all-ignored"):
        labels = torch.full_like(labels, -100)
    if case.about("plus-minus-one"):
        odd = labels % 2
        labels = (2 * odd - 1 if case.broken("plus-minus-one") else odd).float()
    if case.about("sorted-by-class"):
        order = labels.argsort(stable=True)
        images, labels = images[order], labels[order]
    module = Classifier(case)
    if case.about("inverted-weights"):
        kept = torch.rand(len(labels)) < 0.7**labels  # high digits are rare
        images, labels = images[kept], labels[kept]
        counts = labels.bincount().float()
        module.weights = counts / counts.mean() if case.broken("inverted-weights") else counts.mean() / counts
    return fit(case, module, batches(images, labels, shuffle=not case.broken("sorted-by-class")))


if __name__ == "__main__":
    main()
