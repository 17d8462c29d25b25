"""Noise in the wrong place: a denoiser and a variational autoencoder of digits.

    python examples/noise.py --fault target-drawn-anew      the alert, ranked first: WD116
    python examples/noise.py --fixed target-drawn-anew      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "target-drawn-anew": ("WD116", "the noise to predict is drawn once more, after the one in the input"),
    "noise-times-logvar": ("WD116", "noise is multiplied by the log-variance, not by the deviation"),
}


def layers(inputs: int, outputs: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(inputs, 128), nn.SiLU(), nn.Linear(128, outputs))


class Denoiser(L.LightningModule):
    """Predicts the noise in images of 8 by 8, at a level between 0 and 1."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.net = case, layers(65, 64)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images = batch[0].flatten(1)
        level, noise = torch.rand(len(images), 1), torch.randn_like(images)
        noisy = (1 - level).sqrt() * images + level.sqrt() * noise
        predicted = self.net(torch.cat([noisy, level], 1))
        if self.case.broken("target-drawn-anew"):
            noise = torch.randn_like(images)
        return F.mse_loss(predicted, noise)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Autoencoder(L.LightningModule):
    """Codes of eight numbers."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.encoder, self.decoder = case, layers(64, 16), layers(8, 64)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images = batch[0].flatten(1)
        mean, logvar = self.encoder(images).chunk(2, 1)
        scale = logvar if self.case.broken("noise-times-logvar") else (0.5 * logvar).exp()
        code = mean + scale * torch.randn_like(mean)
        error = F.mse_loss(self.decoder(code), images, reduction="none").sum(1).mean()
        return error - 0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    module = Autoencoder(case) if case.about("noise-times-logvar") else Denoiser(case)
    return fit(case, module, batches(*digits()))


if __name__ == "__main__":
    main()
