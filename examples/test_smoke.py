"""A smoke test in one line: twenty steps on the CPU, and the test fails where something is silently wrong.

python -m pytest examples/test_smoke.py
python -m pytest examples --sanity-watchdog      watches every Trainer that any test starts
"""

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import assert_trains


class Digits(L.LightningModule):
    """The module under test."""

    def __init__(self, last: nn.Module | None = None) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), last or nn.Identity())

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        pixels, labels = batch
        return F.cross_entropy(self.net(pixels), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


@pytest.fixture
def digits() -> DataLoader[tuple[Tensor, ...]]:
    data = load_digits()
    pixels = torch.tensor(data.data / 16 - 0.3, dtype=torch.float32)
    return DataLoader(TensorDataset(pixels, torch.tensor(data.target)), 64, shuffle=True)


def test_it_trains(digits: DataLoader[tuple[Tensor, ...]]) -> None:
    assert_trains(Digits(), digits, steps=20)


def test_a_softmax_too_many_is_found(digits: DataLoader[tuple[Tensor, ...]]) -> None:
    with pytest.raises(AssertionError, match="WD102"):
        assert_trains(Digits(nn.Softmax(dim=-1)), digits, steps=20)
