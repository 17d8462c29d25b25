"""What the gallery's scripts share: the command line, the digits, and a short run with the watchdog attached."""

import argparse
import inspect
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import SanityWatchdog

Faults = Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """The run that was asked for: healthy (no name), broken on purpose, or with that fault repaired."""

    name: str | None
    fixed: bool
    logs: str

    def about(self, *names: str) -> bool:
        """Whether the run shows one of these faults, broken or repaired."""
        return self.name in names

    def broken(self, *names: str) -> bool:
        """Whether the run suffers from one of these faults."""
        return self.about(*names) and not self.fixed


def ask(argv: list[str] | None, description: str | None, faults: Faults) -> Case:
    """Read the command line."""
    listed = "\n".join(f"  {name:22} {code}  {text}" for name, (code, text) in faults.items())
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, epilog="faults:\n" + listed, formatter_class=raw)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fault", choices=faults, metavar="NAME", help="break the run")
    which.add_argument("--fixed", choices=faults, metavar="NAME", help="the same run with the alert's hint applied")
    parser.add_argument("--logs", default="lightning_logs", help="folder of the TensorBoard logs")
    args = parser.parse_args(argv)
    return Case(args.fault or args.fixed, args.fixed is not None, args.logs)


def fit(case: Case, module: L.LightningModule, *loaders: Any, **trainer: Any) -> SanityWatchdog:
    """Train and return the watchdog, also where the fault ends the run; settings of the Trainer may be given."""
    warnings.filterwarnings("ignore", module="lightning|torch")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
    watchdog = SanityWatchdog(fail_on=None, targets=trainer.pop("targets", ()))
    quiet = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    logger = TensorBoardLogger(case.logs, name=Path(inspect.getfile(type(module))).stem)
    settings = {"accelerator": "cpu", "devices": 1, "max_steps": 30, "logger": logger, **quiet, **trainer}
    try:
        L.Trainer(callbacks=[watchdog], **settings).fit(module, *loaders)
    except (RuntimeError, ValueError, IndexError) as error:
        print(f"training ended with {type(error).__name__}: {error}")
    return watchdog


def seeded() -> None:
    """Equal weights and batches in every run."""
    L.seed_everything(0, verbose=False)


def digits() -> tuple[Tensor, Tensor]:
    """1,797 handwritten digits: images (n, 1, 8, 8) of zero mean and unit deviation, labels (n,) from 0 to 9."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None]
    return (images - images.mean()) / images.std(), torch.tensor(data.target)


def batches(*tensors: Tensor, size: int = 64, **settings: Any) -> DataLoader[Any]:
    """Shuffled batches of a tensor data set."""
    return DataLoader(TensorDataset(*tensors), size, **{"shuffle": True, **settings})
