"""Learning-rate schedules that count something else than was meant.

    python examples/schedules.py --fault warmup-in-epochs      the alert, ranked first: WD502
    python examples/schedules.py --fixed warmup-in-epochs      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "integer-warmup": ("WD501", "the warm-up divides integers: step // 100 is 0 for 100 steps"),
    "warmup-in-epochs": ("WD502", "a schedule of 100 steps is advanced once per epoch"),
    "rate-set-by-hand": ("WD503", "a hook sets the rate in each step, so the schedule has no effect"),
}


class Digits(L.LightningModule):
    """Two layers and a schedule."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.case.broken("rate-set-by-hand"):
            self.trainer.optimizers[0].param_groups[0]["lr"] = 1e-3

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule: Any = CosineAnnealingLR(optimizer, T_max=100)
        if self.case.broken("integer-warmup"):
            schedule = LambdaLR(optimizer, lambda step: min(1, step // 100))
        elif self.case.about("integer-warmup"):
            schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
        if self.case.broken("warmup-in-epochs"):
            return {"optimizer": optimizer, "lr_scheduler": CosineAnnealingLR(optimizer, T_max=100)}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()), max_steps=100)


if __name__ == "__main__":
    main()
