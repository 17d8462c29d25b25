"""Gradients that are not numbers, vanish, explode, pile up, or never reach the weights.

    python examples/gradients.py --fault root-at-zero      the alert, ranked first: WD211
    python examples/gradients.py --fixed root-at-zero      its hint applied: quiet

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
    "root-at-zero": ("WD211", "a pull towards the initial bias is the root of a distance that starts at zero"),
    "deep-sigmoids": ("WD212", "twelve sigmoid layers: each divides the gradient by four or more"),
    "corrupt-batch": ("WD213", "one batch of unscaled numbers throws the gradients up a thousandfold and more"),
    "no-zero-grad": ("WD216", "manual optimisation without zero_grad"),
    "zero-grad-too-late": ("WD217", "zero_grad between backward and the step"),
    "clipped-before-backward": ("WD218", "clip_grad_norm_ in training_step, before there is a gradient"),
    "dead-relus": ("WD214", "biases start at -8, so no ReLU ever fires"),
    "saturated-tanh": ("WD215", "tanh layers whose weights start 100 times too large"),
}


class Digits(L.LightningModule):
    """A network whose depth and activations follow the case."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.automatic_optimization = not case.about("no-zero-grad", "zero-grad-too-late")
        self.net = nn.Sequential(nn.Flatten(), *self.layers(), nn.Linear(64, 10))
        self.register_buffer("initial", self.net[1].bias.detach().clone())
        for layer in self.net[1:-1]:
            if isinstance(layer, nn.Linear) and case.broken("saturated-tanh"):
                layer.weight.data *= 100
            if isinstance(layer, nn.Linear) and case.broken("dead-relus"):
                nn.init.constant_(layer.bias, -8.0)

    def layers(self) -> list[nn.Module]:
        if self.case.about("saturated-tanh"):
            return [nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
        depth = 12 if self.case.about("deep-sigmoids") else 2
        act = nn.Sigmoid if self.case.broken("deep-sigmoids") else nn.ReLU
        norm = nn.BatchNorm1d if self.case.about("deep-sigmoids") and self.case.fixed else nn.Identity
        return [m for _ in range(depth) for m in (nn.Linear(64, 64), norm(64), act())]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor | None:
        images, labels = batch
        if self.case.broken("corrupt-batch") and batch_idx == 13:
            images = images * 1e5
        loss = F.cross_entropy(self.net(images), labels)
        if self.case.about("root-at-zero"):
            moved = (self.net[1].bias - self.initial).square().sum()
            loss = loss + 0.01 * (moved.sqrt() if self.case.broken("root-at-zero") else (moved + 1e-12).sqrt())
        if self.case.broken("clipped-before-backward"):
            torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        if self.automatic_optimization:
            return loss
        optimizer: Any = self.optimizers()
        if not self.case.broken("no-zero-grad", "zero-grad-too-late"):
            optimizer.zero_grad()
        self.manual_backward(loss)
        if self.case.broken("zero-grad-too-late"):
            optimizer.zero_grad()
        optimizer.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    clips = case.about("clipped-before-backward") and case.fixed
    clip = {"gradient_clip_val": 1.0} if clips else {}
    return fit(case, Digits(case), batches(*digits()), **clip)


if __name__ == "__main__":
    main()
