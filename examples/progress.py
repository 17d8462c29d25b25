"""Losses that stand still, become NaN, jump, or rise.

    python examples/progress.py --fault log-of-zero      the alert, ranked first: WD142
    python examples/progress.py --fixed log-of-zero      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "scaled-twice": ("WD141", "pixels are divided by 255 twice: nothing to tell digits apart"),
    "log-of-zero": ("WD142", "log(softmax(x)) by hand: the logarithm of zero"),
    "outlier-batch": ("WD143", "one batch holds pixels that were never scaled"),
    "reversed-gradient": ("WD144", "a gradient reversal of an adversarial head was left in"),
}


class Digits(L.LightningModule):
    """Two layers."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        if self.case.broken("outlier-batch") and self.global_step == 40:
            images = images * 3000
        if self.case.broken("scaled-twice"):
            images = images / 255 / 255
        scores = self.net(images)
        if self.case.broken("reversed-gradient"):
            scores.register_hook(torch.neg)
        if self.case.about("log-of-zero"):
            scores = scores * (1 + 400 * (self.global_step == 12))
            logs = scores.softmax(-1).log() if self.case.broken("log-of-zero") else scores.log_softmax(-1)
            return F.nll_loss(logs, labels)
        return F.cross_entropy(scores, labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()), max_steps=60)


if __name__ == "__main__":
    main()
