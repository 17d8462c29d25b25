"""What runs on this CPU and will not run on the next machine: judged here, for Apple's GPUs and for TPUs.

    python examples/portability.py --fault double-table      the alert, ranked first: WD405
    python examples/portability.py --fixed double-table      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "tensor-made-in-step": ("WD403", "a tensor made without device= meets the batch"),
    "plain-attribute": ("WD404", "a table kept as a plain attribute does not follow the model"),
    "double-table": ("WD405", "a float64 buffer, which MPS cannot hold"),
    "missing-operator": ("WD406", "an operator that MPS has no kernel for"),
    "half-on-tpu": ("WD408", "precision='16-mixed' on a TPU, which computes in bfloat16"),
    "ragged-lengths": ("WD409", "each batch has another length, and a TPU compiles each anew"),
}


class Digits(L.LightningModule):
    """Two layers and a table of pixel weights."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        table = torch.linspace(0.5, 1.5, 64)
        if case.broken("plain-attribute"):
            self.table = table
        else:
            self.register_buffer("table", table.double() if case.broken("double-table") else table)

    def forward(self, images: Tensor) -> Tensor:
        pixels = F.pad(images.flatten(1), (0, 64 - images[0].numel())) * self.table.float()
        if self.case.about("tensor-made-in-step"):
            home = None if self.case.broken("tensor-made-in-step") else pixels.device
            pixels = pixels + torch.full((64,), 0.1, device=home)
        if self.case.broken("missing-operator"):
            pixels = pixels + 0 * torch.special.airy_ai(pixels.detach())
        return self.net(pixels)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def ragged(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """A batch cut to a length of its own."""
    images, labels = (torch.stack(column) for column in zip(*samples, strict=True))
    return images.flatten(1)[:, : int(torch.randint(8, 64, ()))], labels


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    if case.about("ragged-lengths"):
        collate = ragged if case.broken("ragged-lengths") else None
        return fit(case, Digits(case), batches(images, labels, drop_last=True, collate_fn=collate), targets=("tpu",))
    if case.about("half-on-tpu"):
        precision = "16-mixed" if case.broken("half-on-tpu") else "32-true"
        return fit(case, Digits(case), batches(images, labels), targets=("tpu",), precision=precision)
    return fit(case, Digits(case), batches(images, labels), targets=("mps",))


if __name__ == "__main__":
    main()
