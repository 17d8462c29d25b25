"""Learning rates and settings nobody can mean.

    python examples/optimizer_settings.py --fault tiny-rate      the alert, ranked first: WD316
    python examples/optimizer_settings.py --fixed tiny-rate      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "tiny-rate": ("WD316", "a learning rate of 1e-9"),
    "huge-rate": ("WD317", "a learning rate of 1 for Adam"),
    "swapped-betas": ("WD318", "betas=(0.999, 0.9)"),
    "new-optimizer-every-epoch": ("WD511", "an optimizer made in on_train_epoch_start, whose moments begin anew"),
    "reset-every-epoch": ("WD320", "layers initialised in on_train_epoch_start instead of once"),
    "weights-decay-away": ("WD319", "an L2 penalty whose weight of 10 is meant for the mean, not for the sum"),
}


class Digits(L.LightningModule):
    """Two layers."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def on_fit_start(self) -> None:
        if self.case.about("reset-every-epoch") and self.case.fixed:
            self.initialise()

    def on_train_epoch_start(self) -> None:
        if self.case.broken("reset-every-epoch"):
            self.initialise()
        if self.case.broken("new-optimizer-every-epoch"):
            self.trainer.optimizers = [torch.optim.AdamW(self.parameters(), lr=1e-3)]

    def initialise(self) -> None:
        for module in self.net:
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.net(images), labels)
        if self.case.about("weights-decay-away"):
            matrices = [p for p in self.parameters() if p.ndim == 2]
            squares = [
                p.square().sum() if self.case.broken("weights-decay-away") else p.square().mean() for p in matrices
            ]
            loss = loss + 10 * torch.stack(squares).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.case.broken("tiny-rate"):
            return torch.optim.AdamW(self.parameters(), lr=1e-9)
        if self.case.broken("huge-rate"):
            return torch.optim.AdamW(self.parameters(), lr=1.0)
        if self.case.broken("swapped-betas"):
            return torch.optim.AdamW(self.parameters(), lr=1e-3, betas=(0.999, 0.9))
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()), max_steps=300 if case.about("weights-decay-away") else 60)


if __name__ == "__main__":
    main()
