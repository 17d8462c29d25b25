"""A character language model on Python's own documentation, and three ways to spoil one without an error message.

    python examples/language_model.py                       healthy: the loss falls from ln 96 = 4.564
    python examples/language_model.py --fault no-mask       the alert, ranked first: WD132
    python examples/language_model.py --fixed no-mask       its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

from pydoc_data.topics import topics

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import Case, ask, batches, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "no-mask": ("WD132", "attention without a causal mask: each position sees the answer"),
    "padding-counts": ("WD111", "lines are padded to one length, and the padding counts as target"),
    "unshifted-targets": ("WD112", "the targets are the input itself, not the next characters"),
}
LENGTH, WIDTH, PADDING = 32, 48, 0
SYMBOLS = ["\0", *map(chr, range(32, 127))]


class CharacterModel(L.LightningModule):
    """A transformer of one layer that predicts the next of 96 characters."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.characters = nn.Embedding(len(SYMBOLS), WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(WIDTH, len(SYMBOLS))

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> Tensor:
        (text,) = batch
        ids, targets = text[:, :-1], text[:, 1:]
        if self.case.broken("unshifted-targets"):
            targets = ids
        mask = None if self.case.broken("no-mask") else nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.characters(ids) + self.positions
        hidden = self.layer(hidden, src_mask=mask)
        ignored = PADDING if self.case.about("padding-counts") and not self.case.broken("padding-counts") else -100
        return F.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten(), ignore_index=ignored)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def running_text() -> Tensor:
    """Rows of LENGTH + 1 characters of the documentation, one after the other (n, 33)."""
    text = encode(" ".join(" ".join(topics.values()).split())[:60_000])
    return text[: len(text) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)


def lines() -> Tensor:
    """Single lines, cut or padded to LENGTH + 1 characters (n, 33)."""
    rows = [line.strip() for text in topics.values() for line in text.splitlines() if 4 < len(line.strip()) < 40]
    return torch.stack([encode(r[: LENGTH + 1].ljust(LENGTH + 1, "\0")) for r in rows[:1500]])


def encode(text: str) -> Tensor:
    return torch.tensor([SYMBOLS.index(c) if c in SYMBOLS else SYMBOLS.index("?") for c in text])


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    text = lines() if case.about("padding-counts") else running_text()
    return fit(case, CharacterModel(case), batches(text, size=32, drop_last=True), max_steps=40)


if __name__ == "__main__":
    main()
