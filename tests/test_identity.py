"""A watched run is the unwatched run, bit for bit, and the watchdog was awake while it was watched."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchmetrics
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    EarlyStopping,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

from sanity_watchdog import SanityWatchdog

from .runs import assert_awake, fp16

TARGETS = ("mps", "tpu", "cuda", "xpu")


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Images whose augmentation draws from all three generators."""

    def __init__(self, n: int = 96) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 3, 8, 8, generator=generator)
        self.y = torch.randint(0, 10, (n,), generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        noise = 0.01 * torch.randn(3, 8, 8) + 0.01 * np.random.randn() + 0.01 * random.random()
        return (self.x[i] + noise).float(), self.y[i]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        data = Augmented()
        return (data[i] for i in range(len(data)))


class Tally(TorchFunctionMode):
    """A mode of the user's own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class InPlace(torch.autograd.Function):
    """A backward that works in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.mul_(1.5)


class Net(L.LightningModule):
    """Convolution, BatchNorm, dropout, a schedule, metrics; ``twist`` names what is unusual."""

    def __init__(self, optimizer: str = "adamw", twist: str = "", batch_size: int = 16, broken: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = twist != "manual"
        self.kind, self.twist, self.batch_size, self.broken, self.lr = optimizer, twist, batch_size, broken, 1e-2
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
        )
        self.head = nn.Linear(512, 10)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        self.order: list[str] = []
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.twist == "checkpoint":
            x = checkpoint(self.backbone, x, use_reentrant=False)
        elif self.twist == "mode":
            with Tally():
                x = self.backbone(x)
        else:
            x = self.backbone(x)
        if self.twist == "in-place":
            x = InPlace.apply(x)
        if self.twist == "tensor-hook" and x.requires_grad:
            x.register_hook(lambda g: g + 1e-3 * torch.randn_like(g))
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        if self.twist == "silent":  # Lightning's ``log`` does not compile
            return F.cross_entropy(self(x), y)
        self.order.append(digest(x))
        out = self(x).float()
        loss = F.cross_entropy(out.softmax(-1) if self.broken else out, y)
        self.losses.append(loss.detach().item())
        self.accuracy(out.detach(), y)
        self.log_dict({"loss": loss, "accuracy": self.accuracy}, on_step=True, on_epoch=True)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch[0]).float(), batch[1]))

    def train_dataloader(self) -> DataLoader[Any]:
        if self.twist == "stream":
            return DataLoader(Stream(), self.batch_size)
        return DataLoader(Augmented(), self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Augmented(32), 16)

    def configure_optimizers(self) -> Any:
        parameters = [p for p in self.parameters() if p.requires_grad]
        made: torch.optim.Optimizer
        if self.kind == "lbfgs":
            return torch.optim.LBFGS(parameters, lr=1e-2, max_iter=3)
        if self.kind == "sgd":
            made = torch.optim.SGD(parameters, self.lr, momentum=0.9)
        else:
            made = torch.optim.AdamW(parameters, self.lr, fused=self.kind == "fused")
        schedule = torch.optim.lr_scheduler.StepLR(made, 5)
        return {"optimizer": made, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def digest(value: Any) -> str:
    """A hash of nested data, exact to the bit."""
    h = hashlib.sha256()

    def feed(v: Any) -> None:
        if isinstance(v, Tensor):
            v = v.detach().contiguous()
            h.update(str((v.dtype, tuple(v.shape))).encode())
            h.update(v.reshape(-1).view(torch.uint8).numpy().tobytes() if v.numel() else b"")
        elif isinstance(v, np.ndarray):
            h.update(v.tobytes())
        elif isinstance(v, dict):
            for key, item in v.items():
                h.update(repr(key).encode())
                feed(item)
        elif isinstance(v, (list, tuple)):
            for item in v:
                feed(item)
        else:
            h.update(repr(v).encode())

    feed(value)
    return h.hexdigest()[:16]


def hooks_of(module: nn.Module) -> list[int]:
    return [len(m._forward_hooks) + len(m._backward_hooks) + len(m._forward_pre_hooks) for m in module.modules()]


def compiled(part: str) -> Any:
    def change(net: Net) -> Any:
        if part == "module":
            return torch.compile(net, backend="aot_eager")
        net.backbone = torch.compile(net.backbone, backend="aot_eager")  # type: ignore[assignment]
        return net

    return change


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16-true": {"precision": "bf16-true"},
    "64-true": {"precision": "64-true"},
    "fp16-mixed": {"plugins": fp16},
    "fp16-fused": {"plugins": fp16, "net": {"optimizer": "fused"}},
    "accumulate": {"accumulate_grad_batches": 3},
    "clip": {"gradient_clip_val": 0.5, "net": {"optimizer": "sgd"}},
    "lbfgs": {"net": {"optimizer": "lbfgs"}},
    "manual": {"net": {"twist": "manual"}},
    "stream": {"net": {"twist": "stream"}},
    "no-logger": {"logger": False},
    "fast-dev-run": {"fast_dev_run": 3},
    "early-stopping": {"callbacks": lambda: [EarlyStopping("val_loss", patience=1)]},
    "swa": {"callbacks": lambda: [StochasticWeightAveraging(1e-3, swa_epoch_start=1, annealing_epochs=1)]},
    "backbone-finetuning": {"callbacks": lambda: [BackboneFinetuning(1)]},
    "batch-size-finder": {"callbacks": lambda: [BatchSizeFinder(max_trials=2, init_val=8, steps_per_trial=1)]},
    "lr-finder": {"callbacks": lambda: [LearningRateFinder(num_training_steps=4)]},
    "checkpointing": {"net": {"twist": "checkpoint"}},
    "in-place": {"net": {"twist": "in-place"}},
    "tensor-hook": {"net": {"twist": "tensor-hook"}},
    "user-mode": {"net": {"twist": "mode"}},
    "compiled-part": {"change": compiled("part")},
    "compiled-module": {"change": compiled("module"), "net": {"twist": "silent"}},
    "resume": {"resume": True},
    "two-fits": {"fits": 2},
}
if hasattr(callbacks, "WeightAveraging"):  # Lightning 2.6
    CONFIGURATIONS["weight-averaging"] = {"callbacks": lambda: [callbacks.WeightAveraging()]}
JUDGED = 25


def run(name: str, watchdog: SanityWatchdog | None, folder: Path, broken: bool = False) -> dict[str, str]:
    """Everything that a run leaves behind, as hashes."""
    configuration = dict(CONFIGURATIONS[name])
    net_arguments, fits = configuration.pop("net", {}), configuration.pop("fits", 1)
    change, resume = configuration.pop("change", lambda net: net), configuration.pop("resume", False)
    more = configuration.pop("callbacks", list)
    if "plugins" in configuration:
        configuration["plugins"] = [configuration["plugins"]()]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    L.seed_everything(7, verbose=False)
    net = Net(**net_arguments, broken=broken)
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 12,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "logger": CSVLogger(folder, name="csv", version=0),
        **configuration,
    }
    dogs = [watchdog] if watchdog else []
    whole = change(net)
    for fit in range(fits + resume):
        saver = ModelCheckpoint(folder, filename=f"{fit}", every_n_train_steps=6, save_top_k=-1)
        trainer = L.Trainer(callbacks=[*dogs, *more(), saver], **{**settings, "max_steps": 12 + 6 * (fit and resume)})
        trainer.fit(whole, ckpt_path=folder / "0.ckpt" if fit and resume else None)
    found = {
        "weights": digest(dict(net.named_parameters())),
        "buffers": digest(dict(net.named_buffers())),
        "gradients": digest([p.grad for p in net.parameters()]),
        "optimizers": digest([o.state_dict() for o in trainer.optimizers]),
        "losses": digest(net.losses),
        "order": digest(net.order),
        "generators": digest([torch.get_rng_state(), np.random.get_state()[1], random.getstate()]),
        "metrics": digest(dict(sorted(trainer.callback_metrics.items()))),
        "hooks": digest(hooks_of(net)),
        "modes": digest([m.training for m in net.modules()]),
        "graphs": repr(dict(torch._dynamo.utils.counters["stats"])),
        "strategy": digest(sorted(vars(trainer.strategy))),
    }
    for path in sorted(folder.rglob("*.ckpt")):
        found[path.name] = digest(torch.load(path, weights_only=False))
    for path in sorted(folder.rglob("metrics.csv")):
        found["csv"] = digest(path.read_text())
    return found


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_watched_run_is_the_same_run(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"  # checkpoints hold paths: both runs have the same
    plain = run(name, None, folder)
    shutil.rmtree(folder, ignore_errors=True)
    watchdog = SanityWatchdog(fail_on=None, every_n_steps=1, targets=TARGETS, record=tmp_path / "watchdog.jsonl")
    watched = run(name, watchdog, folder)
    assert watched == plain
    assert_awake(watchdog, JUDGED)


@pytest.mark.parametrize("name", ["fp32", "fp16-mixed", "manual", "accumulate", "bf16-mixed", "compiled-part"])
def test_a_planted_fault_alerts_in_the_same_setting(name: str, tmp_path: Path) -> None:
    watchdog = SanityWatchdog(fail_on=None, record=tmp_path / "watchdog.jsonl")
    run(name, watchdog, tmp_path / "run", broken=True)
    assert "WD102" in {a.code for a in watchdog.alerts}
    assert watchdog.verdict == "fail"


@pytest.mark.parametrize("action", ["validate", "test", "predict"])
def test_other_loops_are_left_alone(action: str, tmp_path: Path) -> None:
    class Evaluated(Net):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.validation_step(batch, batch_idx)

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0])

    def outcome(dogs: list[SanityWatchdog]) -> str:
        L.seed_everything(7, verbose=False)
        net = Evaluated()
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            callbacks=dogs,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        result = getattr(trainer, action)(
            net, DataLoader(Augmented(32), 16), **({} if action == "predict" else {"verbose": False})
        )
        return digest([result, dict(net.state_dict()), torch.get_rng_state()])

    dog = SanityWatchdog(fail_on="info")
    assert outcome([dog]) == outcome([])
    assert dog.verdict == "incomplete"
    assert not dog.alerts


def test_two_processes(tmp_path: Path) -> None:
    def outcome(watched: bool) -> Any:
        command = [
            sys.executable,
            "-m",
            "tests.ddp_run",
            str(tmp_path / str(watched)),
            *(["--watched"] if watched else []),
        ]
        root = Path(__file__).parents[1]
        paths = os.pathsep.join([str(root), str(root / "watchdog"), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=root, env=environ, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        assert lines, done.stderr[-2000:]
        return json.loads(lines[-1][6:])

    plain, watched = outcome(False), outcome(True)
    assert watched.pop("judged") >= JUDGED
    assert plain.pop("judged") == 0
    assert watched == plain
