"""Forward passes with a wiring fault: they run, they even train, and they compute something else.

    python examples/forward.py --fault attention-over-batch      the alert, ranked first: WD131
    python examples/forward.py --fixed attention-over-batch      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "attention-over-batch": ("WD131", "attention without batch_first: each digit looks at the other digits"),
    "softmax-over-queries": ("WD134", "attention by hand whose weights sum to 1 over the queries"),
    "rows-by-view": ("WD135", "view in place of transpose: the columns are pieces of rows"),
    "clamped-for-nobody": ("WD136", "clamp returns a new tensor, and the line does not take it"),
    "overwritten-features": ("WD133", "a leftover line overwrites the features with zeros"),
    "float64-batch": ("WD402", "NumPy's float64 reaches float32 weights"),
}


class Rows(L.LightningModule):
    """Reads a digit as a sequence of eight rows of pixels."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.embed = nn.Linear(8, 32)
        if not case.about("softmax-over-queries"):
            self.attention = nn.MultiheadAttention(32, 4, batch_first=not case.broken("attention-over-batch"))
        self.head = nn.Linear(8 * 32, 10)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.squeeze(1)
        if self.case.about("clamped-for-nobody"):
            if self.case.broken("clamped-for-nobody"):
                pixels.clamp(0, 0.5)
            else:
                pixels = pixels.clamp(0, 0.5)
        if self.case.about("rows-by-view"):
            padded = F.pad(pixels, (0, 1))
            pixels = padded.view(-1, 9, 8) if self.case.broken("rows-by-view") else padded.transpose(1, 2)
        rows = self.embed(pixels[:, :8])
        if self.case.about("softmax-over-queries"):
            scores = rows @ rows.transpose(-2, -1) / 32**0.5
            rows = rows + scores.softmax(-2 if self.case.broken("softmax-over-queries") else -1) @ rows
        else:
            rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        if self.case.broken("overwritten-features"):
            rows = torch.zeros_like(rows)
        return self.head(rows.flatten(1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    images, labels = digits()
    if case.broken("float64-batch"):
        images = images.double()
    return fit(case, Rows(case), batches(images, labels))


if __name__ == "__main__":
    main()
