"""Train a small CNN on scikit-learn's handwritten digits with the watchdog attached.

    python examples/train_digits.py                     a healthy run: two lines at the end
    python examples/train_digits.py --fault hot-head    a broken one: the alert says what is wrong

Real data, ten classes, no download. The faults are realistic ways to break the same script.
"""

import argparse
import logging
import warnings
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
import torchmetrics
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins import MixedPrecision
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from sanity_watchdog import SanityWatchdog

FAULTS = {
    "hot-head": ("WD101", "the last layer's weights are 20 times too large"),
    "fp16-underflow": ("WD201", "fp16 training with a loss weight of 1e-6 and no loss scaling"),
    "zeroed-layer": ("WD301", "a clean-up hook zeroes the second convolution after a few steps"),
    "float64-batch": ("WD402", "NumPy's float64 features reach the model unconverted"),
    "double-softmax": ("WD102", "the model ends in a softmax although the loss applies one"),
}


class Digits(L.LightningModule):
    """A CNN for 8 x 8 grey images. ``fault`` is one of ``FAULTS`` or None."""

    def __init__(self, fault: str | None = None) -> None:
        super().__init__()
        self.fault = fault
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
        )  # fmt: skip
        if fault == "hot-head":
            with torch.no_grad():
                self.net[-1].weight *= 20
        if fault == "double-softmax":
            self.net.append(nn.Softmax(dim=-1))
        self.train_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        self.val_accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        logits = self.net(images)
        loss = F.cross_entropy(logits, labels)
        self.train_accuracy(logits, labels)
        self.log_dict({"train/loss": loss, "train/accuracy": self.train_accuracy}, prog_bar=True)
        return loss * 1e-6 if self.fault == "fp16-underflow" else loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        logits = self.net(images)
        self.val_accuracy(logits, labels)
        self.log_dict({"val/loss": F.cross_entropy(logits, labels), "val/accuracy": self.val_accuracy}, prog_bar=True)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.fault == "zeroed-layer" and self.global_step == 8:
            with torch.no_grad():
                self.net[3].weight.zero_()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def data(dtype: torch.dtype) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Training and validation loaders over 1,797 images scaled to zero mean and unit deviation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=dtype)[:, None]
    images = (images - images.mean()) / images.std()
    dataset = TensorDataset(images, torch.tensor(digits.target))
    train, val = random_split(dataset, [1500, 297], torch.Generator().manual_seed(0))
    return DataLoader(train, 64, shuffle=True), DataLoader(val, 297)


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog, whose ``verdict`` and ``alerts`` tell how it went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    faults = "\n".join(f"  {name:15} {code}  {text}" for name, (code, text) in FAULTS.items())
    parser.add_argument("--fault", choices=FAULTS, metavar="NAME", help="break the run; one of\n" + faults)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--logs", default="lightning_logs", help="folder of the TensorBoard logs")
    args = parser.parse_args(argv)

    warnings.filterwarnings("ignore", ".*does not have many workers.*|.*smaller than the logging interval.*")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    L.seed_everything(0, verbose=False)
    watchdog = SanityWatchdog(fail_on=None)
    unscaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", enabled=False))
    logger = TensorBoardLogger(args.logs, name="digits")
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        callbacks=[watchdog],
        logger=logger,
        plugins=[unscaled] if args.fault == "fp16-underflow" else [],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = data(torch.float64 if args.fault == "float64-batch" else torch.float32)
    try:
        trainer.fit(Digits(args.fault), *loaders)
        accuracy = trainer.callback_metrics["val/accuracy"]
        print(f"validation accuracy {accuracy:.3f} after {args.epochs} epochs")
    except RuntimeError as error:
        print(f"training ended with {type(error).__name__}: {error}")
    print(f"what was seen: tensorboard --logdir {args.logs}   (the Watchdog tab, or the Text tab)")
    return watchdog


if __name__ == "__main__":
    main()
