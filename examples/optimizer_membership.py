"""Parameters that train without an optimizer, optimizers without parameters, and layers nobody registered.

    python examples/optimizer_membership.py --fault forgotten-head      the alert, ranked first: WD311
    python examples/optimizer_membership.py --fixed forgotten-head      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "forgotten-head": ("WD311", "the optimizer gets the backbone's parameters and not the head's"),
    "replaced-head": ("WD312", "the head is replaced after the optimizer's parameters were listed"),
    "layers-in-a-list": ("WD313", "layers in a plain list are no parameters of the module"),
    "no-grad-backbone": ("WD314", "the backbone runs under no_grad although it shall train"),
    "everything-frozen": ("WD315", "after the warm-up run everything but the last bias stayed frozen"),
}


class Digits(L.LightningModule):
    """A backbone and a head."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 10)
        self.listed = list(self.parameters())
        if case.about("replaced-head"):
            self.head = nn.Linear(64, 10)
        if case.about("layers-in-a-list"):
            layers = [nn.Linear(64, 64), nn.Linear(64, 64)]
            self.extra = layers if case.broken("layers-in-a-list") else nn.ModuleList(layers)
        if case.broken("everything-frozen"):
            self.requires_grad_(False)
            self.head.bias.requires_grad_(True)

    def forward(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(not self.case.broken("no-grad-backbone")):
            features = self.backbone(images)
        if self.case.about("layers-in-a-list"):
            for layer in self.extra:
                features = F.relu(layer(features))
        return self.head(features)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        meant = self.parameters()
        if self.case.broken("forgotten-head"):
            meant = self.backbone.parameters()
        if self.case.broken("replaced-head"):
            meant = iter(self.listed)
        return torch.optim.AdamW(meant, lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), batches(*digits()))


if __name__ == "__main__":
    main()
