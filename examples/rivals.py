"""A generator of digits and its discriminator, in manual optimisation.

    python examples/rivals.py --fault told-it-is-false      the alert, ranked first: WD117
    python examples/rivals.py --fixed told-it-is-false      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "told-it-is-false": ("WD117", "the generator is given the answer that the discriminator wants, not the other one"),
    "slope-of-pixels": ("WD118", "the gradient penalty asks each column of pixels for a slope of 1, not the image"),
}


class Game(L.LightningModule):
    """Noise of 16 numbers becomes an image of 8 by 8."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.automatic_optimization = case, False
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))
        self.discriminator = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def told(self, images: Tensor, answer: float) -> Tensor:
        """Loss of the discriminator's scores against one answer for all."""
        scores = self.discriminator(images)
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, answer))

    def penalty(self, real: Tensor, made: Tensor) -> Tensor:
        """Of the slope between an image and a made one."""
        alpha = torch.rand(len(real), 1, 1)
        between = (alpha * real + (1 - alpha) * made).requires_grad_()
        scores = self.discriminator(between.flatten(1))
        (slope,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
        if not self.case.broken("slope-of-pixels"):
            slope = slope.flatten(1)
        return (slope.norm(2, dim=1) - 1).square().mean()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        player, judge = self.optimizers()
        images = batch[0].flatten(1)
        made = self.generator(torch.randn(len(images), 16))
        judge.zero_grad()
        loss = self.told(images, 1.0) + self.told(made.detach(), 0.0)
        if self.case.about("slope-of-pixels"):
            loss = loss + self.penalty(images.view(-1, 8, 8), made.detach().view(-1, 8, 8))
        self.manual_backward(loss)
        judge.step()
        player.zero_grad()
        self.manual_backward(self.told(made, 0.0 if self.case.broken("told-it-is-false") else 1.0))
        player.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.generator, self.discriminator)]


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Game(case), batches(*digits()))


if __name__ == "__main__":
    main()
