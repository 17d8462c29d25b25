"""Tiny real training runs, shared by the tests that need a Trainer."""

import tempfile
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity

_FOLDER = tempfile.TemporaryDirectory()


def blobs(n: int = 256, d: int = 20, k: int = 10) -> tuple[Tensor, Tensor]:
    """Standardised Gaussian clusters: features (n, d), labels (n,)."""
    y = torch.randint(0, k, (n,))
    x = torch.randn(k, d)[y] * 2 + torch.randn(n, d)
    return (x - x.mean()) / x.std(), y


def loader(*tensors: Tensor, batch_size: int = 32, shuffle: bool = True, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors), batch_size, shuffle=shuffle, **kwargs)


def mlp(d: int = 20, k: int = 10, width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, k))


class Classifier(L.LightningModule):
    """A network, a loss, an optimizer; automatic optimisation."""

    def __init__(
        self,
        net: nn.Module | None = None,
        loss: Callable[..., Tensor] = F.cross_entropy,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        **hyperparameters: Any,
    ) -> None:
        super().__init__()
        self.net = mlp() if net is None else net
        self.loss, self.optimizer, self.hyperparameters = loss, optimizer, {"lr": 1e-3, **hyperparameters}

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self.net(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.loss(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters(), **self.hyperparameters)


class Manual(Classifier):
    """The same in manual optimisation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        step_by_hand(self, super().training_step(batch, batch_idx))


def step_by_hand(module: L.LightningModule, loss: Tensor) -> None:
    """One step of the only optimizer of a module in manual optimisation."""
    optimizer: Any = module.optimizers()
    optimizer.zero_grad()
    module.manual_backward(loss)
    optimizer.step()


def fp16(init_scale: float = 2.0**16, **kwargs: Any) -> MixedPrecision:
    """Real fp16 autocast with a real loss scaler on the CPU."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=init_scale, **kwargs))


def trainer(*callbacks: L.Callback, **kwargs: Any) -> L.Trainer:
    """A quiet Trainer on the CPU that leaves nothing behind."""
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 8,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "default_root_dir": _FOLDER.name,
    }
    return L.Trainer(callbacks=list(callbacks), **{**settings, **kwargs})


def watched(
    module: L.LightningModule,
    data: Any = None,
    validation: Any = None,
    watchdog: SanityWatchdog | None = None,
    **kwargs: Any,
) -> SanityWatchdog:
    """Fit ``module`` with a watchdog that never stops the run; returns the watchdog."""
    dog = SanityWatchdog(fail_on=None) if watchdog is None else watchdog
    data = loader(*blobs()) if data is None else data
    trainer(dog, **kwargs).fit(module, data, validation)
    return dog


def codes(dog: SanityWatchdog, least: Severity = Severity.WARNING) -> list[str]:
    """Codes of the alerts that are at least this severe, ranked."""
    return [a.code for a in dog.alerts if a.severity >= least]


def assert_awake(dog: SanityWatchdog, judged: int = 5) -> None:
    """The watchdog worked: nothing of its own broke, and at least this many checks came to a verdict."""
    assert not dog.summary.broken, dog.summary.broken
    assert len(dog.summary.judged) >= judged, dog.summary.judged


class _Detaches(TorchDispatchMode):
    """Counts what is dispatched."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


def detaches_seen() -> int:
    """How often one ``detach`` is dispatched: older torch does it once more for each mode that is active."""
    ones = torch.ones(1)
    with _Detaches() as mode:
        ones.detach()
    return mode.seen
