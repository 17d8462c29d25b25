"""Weights that become zero or NaN, cannot leave zero, or are all the same.

    python examples/parameters.py --fault zeroed-layer      the alert, ranked first: WD301
    python examples/parameters.py --fixed zeroed-layer      its hint applied: quiet

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
    "zeroed-layer": ("WD301", "a clean-up hook zeroes a layer after eight steps"),
    "zero-factors": ("WD302", "both matrices of a low-rank adapter start at zero"),
    "zero-by-zero": ("WD303", "rows of an embedding are divided by their norm; that of the padding is zero"),
    "constant-start": ("WD304", "a layer starts with one constant: all its units learn the same"),
}


class Digits(L.LightningModule):
    """Two layers, and a low-rank adapter beside them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.first, self.last = nn.Linear(256 if case.about("zero-by-zero") else 64, 64), nn.Linear(64, 10)
        if case.about("zero-by-zero"):
            self.levels = nn.Embedding(18, 4, padding_idx=0)
        if case.broken("constant-start"):
            nn.init.constant_(self.first.weight, 0.01)
            nn.init.zeros_(self.first.bias)
            nn.init.constant_(self.last.weight, 0.01)
        if case.about("zero-factors"):
            self.down, self.up = nn.Linear(64, 8, bias=False), nn.Linear(8, 10, bias=False)
            nn.init.zeros_(self.up.weight)
            if case.broken("zero-factors"):
                nn.init.zeros_(self.down.weight)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        pixels = images.flatten(1)
        if self.case.about("zero-by-zero"):
            pixels = self.levels((pixels * 3 + 5).long().clamp(1, 17)).flatten(1)
        scores = self.last(F.relu(self.first(pixels)))
        if self.case.about("zero-factors"):
            scores = scores + self.up(self.down(pixels))
        return F.cross_entropy(scores, labels)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.case.broken("zeroed-layer") and self.global_step == 8:
            self.first.weight.data.zero_()
        if self.case.about("zero-by-zero"):
            norms = self.levels.weight.data.norm(dim=1, keepdim=True)
            self.levels.weight.data /= norms if self.case.broken("zero-by-zero") else norms.clamp_min(1e-6)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()))


if __name__ == "__main__":
    main()
