"""Two processes on one machine, and a data loader that gives both of them the same batches.

    python examples/ddp.py                          healthy: each process trains on its own half
    python examples/ddp.py --fault shared-data      the alert, ranked first: WD602
    python examples/ddp.py --fixed shared-data      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

from common import Case, ask, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "shared-data": ("WD602", "a sampler of one's own, seeded alike, and use_distributed_sampler=False"),
}


class Digits(L.LightningModule):
    """Two layers; the loader is made where the process group is there."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        data = TensorDataset(*digits())
        sampler = RandomSampler(data) if self.case.broken("shared-data") else DistributedSampler(data)
        return DataLoader(data, 32, sampler=sampler)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog, which on rank zero knows what all ranks have seen."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    return fit(case, Digits(case), devices=2, strategy="ddp", use_distributed_sampler=False)


if __name__ == "__main__":
    main()
