"""Data that arrive broken: values, scales, batches, and labels that hide among the features.

    python examples/data.py --fault nan-feature      the alert, ranked first: WD121
    python examples/data.py --fixed nan-feature      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits, load_wine
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from common import Case, ask, batches, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "nan-feature": ("WD121", "one missing pixel in the whole data set"),
    "integer-division": ("WD122", "images // 17 instead of / 16: every pixel is zero"),
    "raw-columns": ("WD123", "wine: proline near 1,000 beside hue near 1, unscaled"),
    "index-unused": ("WD124", "the data set draws from a generator that it seeds anew for each item"),
    "normalised-in-place": ("WD127", "__getitem__ subtracts the mean from the stored row, again in every epoch"),
    "last-batch-of-one": ("WD125", "1,793 samples in batches of 64 leave one, and BatchNorm needs two"),
    "label-among-features": ("WD145", "the table's label column was kept among the features"),
}


class Classifier(L.LightningModule):
    """A small network for rows of features."""

    def __init__(self, features: int, classes: int, case: Case) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(64) if case.about("last-batch-of-one") else nn.Identity()
        self.net = nn.Sequential(nn.Linear(features, 64), norm, nn.ReLU(), nn.Linear(64, classes))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        rows, labels = batch
        return F.cross_entropy(self.net(rows), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Digits with noise as augmentation."""

    def __init__(self, rows: Tensor, labels: Tensor, case: Case) -> None:
        self.rows, self.labels, self.case = rows, labels, case
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if self.case.broken("index-unused"):
            index = int(torch.randint(len(self), (), generator=self.generator.manual_seed(index % 64)))
        noise = 0.1 * torch.randn(self.rows.shape[1:], generator=self.generator)
        return self.rows[index] + noise, self.labels[index]


class Centred(Dataset[tuple[Tensor, Tensor]]):
    """Digits minus their mean."""

    def __init__(self, rows: Tensor, labels: Tensor, case: Case) -> None:
        self.rows, self.labels, self.case = rows, labels, case
        self.mean = rows.mean(0)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = self.rows[index]
        if self.case.broken("normalised-in-place"):
            row -= self.mean
            row /= 2
            return row, self.labels[index]
        return (row - self.mean) / 2, self.labels[index]


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    source = load_wine() if case.about("raw-columns") else load_digits()
    rows, labels = torch.tensor(source.data, dtype=torch.float32), torch.tensor(source.target)
    if case.broken("integer-division"):
        rows = rows // 17
    elif not case.broken("raw-columns"):
        rows = (rows - rows.mean(0)) / rows.std(0).clamp_min(1e-3)
    if case.about("nan-feature"):
        rows[700, 20] = torch.nan
        whole = torch.isfinite(rows).all(1)
        rows, labels = (rows, labels) if case.broken("nan-feature") else (rows[whole], labels[whole])
    if case.broken("label-among-features"):
        rows = torch.cat([rows, labels[:, None].float()], 1)
    model = Classifier(rows.shape[1], int(labels.max()) + 1, case)
    if case.about("index-unused"):
        return fit(case, model, DataLoader(Noisy(rows, labels, case), 64, shuffle=not case.broken("index-unused")))
    if case.about("normalised-in-place"):
        data = Centred(rows[:640] + 1, labels[:640], case)
        return fit(case, model, DataLoader(data, 64, shuffle=True))
    if case.about("last-batch-of-one"):
        dropped = not case.broken("last-batch-of-one")
        return fit(case, model, batches(rows[:1793], labels[:1793], drop_last=dropped))
    return fit(case, model, batches(rows, labels, size=32))


if __name__ == "__main__":
    main()
