"""LightningCLI: the watchdog comes from the configuration, no line of code knows it.

python examples/cli/train.py fit --config examples/cli/config.yaml
python examples/cli/train.py fit --config examples/cli/config.yaml --model.rate 1.0     broken: WD317
"""

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.cli import LightningCLI
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(L.LightningModule):
    """Two layers.

    Args:
        width: units of the hidden layer.
        rate: learning rate of AdamW.
    """

    def __init__(self, width: int = 64, rate: float = 1e-3) -> None:
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        pixels, labels = batch
        return F.cross_entropy(self.net(pixels), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.rate)


class DigitsData(L.LightningDataModule):
    """scikit-learn's handwritten digits, scaled to zero mean and unit deviation."""

    def __init__(self, batch_size: int = 64) -> None:
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        digits = load_digits()
        pixels = torch.tensor(digits.data, dtype=torch.float32)
        pixels = (pixels - pixels.mean()) / pixels.std()
        return DataLoader(TensorDataset(pixels, torch.tensor(digits.target)), self.batch_size, shuffle=True)


def main(args: list[str] | None = None) -> LightningCLI:
    """Run the command line; ``args`` replace ``sys.argv``."""
    return LightningCLI(Digits, DigitsData, args=args, save_config_callback=None)


if __name__ == "__main__":
    main()
