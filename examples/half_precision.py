"""float16 and bfloat16: numbers that are too small, too large, or too close together for the format.

    python examples/half_precision.py --fault underflow      the alert, ranked first: WD201
    python examples/half_precision.py --fixed underflow      its hint applied: quiet

Everything runs on the CPU, with real float16 autocast and a real loss scaler.
"""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "underflow": ("WD201", "a loss weight of 1e-6 under float16, and no loss scaling"),
    "overflow": ("WD202", "readings of the order 20,000 enter a layer: its outputs exceed 65504"),
    "restless-scaler": ("WD203", "growth_interval=1: the scale overflows every other step"),
    "lost-updates": ("WD204", "bfloat16 weights with a learning rate of 1e-5"),
    "vanishing-eps": ("WD205", "Adam's eps of 1e-8 is zero in float16"),
    "clipped-too-early": ("WD206", "gradients are clipped while they carry the loss scale"),
    "half-weights": ("WD207", "float16 weights under a loss scaler"),
}


class Digits(L.LightningModule):
    """Two layers; manual optimisation where gradients are clipped by hand."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        norm = nn.LayerNorm(64) if case.about("overflow") else nn.Identity()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), norm, nn.ReLU(), nn.Linear(64, 10))
        if case.about("overflow"):
            nn.init.normal_(self.net[1].weight)
        self.automatic_optimization = not case.about("clipped-too-early")
        if case.broken("half-weights"):
            self.net.half()

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.net(images), labels)
        return loss * 1e-6 if self.case.about("underflow") else loss

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor | None:
        loss = self.loss(batch)
        if self.automatic_optimization:
            return loss
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        if self.case.broken("clipped-too-early"):
            nn.utils.clip_grad_norm_(self.parameters(), 0.5)
        optimizer.step()
        return None

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.case.about("clipped-too-early") and self.case.fixed:
            nn.utils.clip_grad_norm_(self.parameters(), 0.5)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.case.about("lost-updates"):
            return torch.optim.AdamW(self.parameters(), lr=1e-5)
        if self.case.about("vanishing-eps"):
            return torch.optim.Adam(self.parameters(), lr=1e-3, eps=1e-4 if self.case.fixed else 1e-8)
        if self.case.about("underflow"):
            return torch.optim.Adam(self.parameters(), lr=1e-3, eps=1e-12)
        return torch.optim.SGD(self.parameters(), lr=0.05)


def precision(case: Case) -> dict[str, Any]:
    """The Trainer's settings for the number format."""
    if case.about("lost-updates"):
        return {"precision": "bf16-true" if case.broken("lost-updates") else "bf16-mixed"}
    if case.about("vanishing-eps"):
        return {"precision": "16-true"}
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, enabled=not case.broken("underflow"))
    if case.broken("restless-scaler"):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=1)
    return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    if case.broken("overflow"):
        images = images * 2e4
    return fit(case, Digits(case), batches(images, labels), max_steps=60, **precision(case))


if __name__ == "__main__":
    main()
