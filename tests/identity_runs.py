"""One small training run in many settings, and everything that it leaves behind, as hashes."""

import contextlib
import hashlib
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
import torchmetrics
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    EarlyStopping,
    EMAWeightAveraging,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as global_hooks
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.flop_counter import FlopCounterMode

from sanity_watchdog import SanityWatchdog

from .runs import detaches_seen, fp16, step_by_hand

NOTES: list[Any] = []
"""What the user's own hooks, modes and functions were called with in the run at hand."""


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
    """A function mode of the user's own, which counts the calls."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        NOTES.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """A dispatch mode of the user's own, which counts the operators; those that torch itself repeats are left out."""

    repeated = {torch.ops.aten.detach.default} if detaches_seen() > 1 else set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in self.repeated:
            NOTES.append(func.__name__)
        return func(*args, **(kwargs or {}))


class InPlace(torch.autograd.Function):
    """A backward that works in place, counts its calls and draws a random number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        NOTES.append("backward")
        return grad.mul_(1.5 + 1e-3 * torch.rand(()))


def _noted(name: str, result: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    def hook(*args: Any) -> Any:
        NOTES.append(name)
        return result(*args)

    return hook


def hook_everything(net: "Net") -> None:
    """Every kind of hook that a module or a parameter takes; some change what passes, some draw random numbers."""
    for part in (net.backbone, net.head):
        part.register_forward_pre_hook(_noted("pre", lambda m, args: (args[0] * 1.01,)))
        part.register_forward_hook(_noted("forward", lambda m, args, out: out + 1e-3 * torch.randn_like(out)))
        part.register_full_backward_pre_hook(_noted("backward pre"))
        part.register_full_backward_hook(
            _noted("backward", lambda m, given, grad: tuple(1.1 * g for g in given if g is not None) or None)
        )
    for p in net.parameters():
        p.register_hook(_noted("gradient", lambda g: g + 1e-4 * torch.randn_like(g)))
        p.register_post_accumulate_grad_hook(_noted("accumulated"))


class Net(L.LightningModule):
    """Convolution, BatchNorm, dropout, metrics; ``twist`` names what is unusual, ``fault`` what is wrong."""

    def __init__(self, optimizer: str = "adamw", twist: str = "", batch_size: int = 16, fault: str = "") -> None:
        super().__init__()
        self.automatic_optimization = twist != "manual"
        self.kind, self.twist, self.batch_size, self.fault, self.lr = optimizer, twist, batch_size, fault, 1e-2
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()
        )
        self.head = nn.Linear(512, 10)
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)
        self.order: list[str] = []
        self.losses: list[float] = []
        if twist == "hooks":
            hook_everything(self)

    def forward(self, x: Tensor) -> Tensor:
        if self.twist in ("checkpoint", "reentrant"):
            x = x.requires_grad_(self.twist == "reentrant" and torch.is_grad_enabled())
            x = checkpoint(self.backbone, x, use_reentrant=self.twist == "reentrant")
        else:
            with _MODES.get(self.twist, contextlib.nullcontext)():
                x = self.backbone(x)
        if self.twist == "in-place":
            x = InPlace.apply(x)
        if self.twist == "tensor-hook" and x.requires_grad:
            x.register_hook(_noted("tensor", lambda g: g + 1e-3 * torch.randn_like(g)))
        if self.twist == "node-hook" and x.grad_fn is not None:
            x.grad_fn.register_hook(_noted("node"))
            x.grad_fn.register_prehook(_noted("node before"))
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        if self.twist == "silent":  # Lightning's ``log`` does not compile
            return F.cross_entropy(self(x), y)
        self.order.append(digest(x))
        out = self(x).float()
        loss = F.cross_entropy(out.softmax(-1) if self.fault == "softmax" else out, y)
        self.losses.append(loss.detach().item())
        self.accuracy(out.detach(), y)
        self.log_dict({"loss": loss, "accuracy": self.accuracy}, on_step=True, on_epoch=True)
        return loss if self.automatic_optimization else step_by_hand(self, loss)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.cross_entropy(self(batch[0]).float(), batch[1]))

    def train_dataloader(self) -> DataLoader[Any]:
        if self.twist == "stream":
            return DataLoader(Stream(), self.batch_size)
        return DataLoader(Augmented(), self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Augmented(32), 16)

    def configure_optimizers(self) -> Any:
        outside = self.head.bias if self.fault == "outside" else None
        parameters = [p for p in self.parameters() if p.requires_grad and p is not outside]
        made: torch.optim.Optimizer
        if self.kind == "lbfgs":
            return torch.optim.LBFGS(parameters, lr=1e-2, max_iter=3)
        if self.kind == "sgd":
            made = torch.optim.SGD(parameters, self.lr, momentum=0.9)
        else:
            made = torch.optim.AdamW(parameters, self.lr, fused=self.kind == "fused")
        schedule = torch.optim.lr_scheduler.StepLR(made, 5)
        return {"optimizer": made, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


_MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "function-mode": Tally,
    "dispatch-mode": Operators,
    "saved-tensors": lambda: saved_tensors_hooks(_noted("pack", lambda t: t.clone()), _noted("unpack", lambda t: t)),
    "on-cpu": torch.autograd.graph.save_on_cpu,
}


@contextlib.contextmanager
def counting_flops() -> Iterator[None]:
    with FlopCounterMode(display=False) as counter:
        yield
    NOTES.append(counter.get_total_flops())


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


def process(earlier: Container[threading.Thread] = ()) -> dict[str, str]:
    """What a run may change in its process: modes, hooks for every module, replaced functions, filters, threads other
    than ``earlier`` ones."""
    kinds = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    functions = (torch._C._nn.cross_entropy_loss, torch._C._nn.nll_loss_nd, torch._C._nn.mse_loss)
    found = {
        "function modes": _get_current_function_mode_stack(),
        "dispatch modes": _get_current_dispatch_mode_stack(),
        "global hooks": [len(getattr(global_hooks, kind)) for kind in kinds],
        "functions": functions,
        "more functions": [torch.kl_div, torch.binary_cross_entropy_with_logits, torch.optim.Optimizer.step],
        "compile": torch.compile,
        "grad": [torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.is_autocast_enabled("cpu")],
        "settings": [torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype(), torch.get_num_threads()],
        "filters": warnings.filters,
        "signals": [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)],
        "interpreter": [sys.excepthook, threading.excepthook, sys.gettrace(), sys.getprofile()],
        "threads": sorted(t.name for t in threading.enumerate() if not t.daemon and t not in earlier),
    }
    return {f"process: {name}": repr(one) for name, one in found.items()}


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
    "fused": {"net": {"optimizer": "fused"}},
    "accumulate": {"accumulate_grad_batches": 3},
    "clip": {"gradient_clip_val": 0.5, "net": {"optimizer": "sgd"}},
    "lbfgs": {"net": {"optimizer": "lbfgs"}},
    "manual": {"net": {"twist": "manual"}},
    "stream": {"net": {"twist": "stream"}},
    "no-logger": {"logger": lambda folder: False},
    "tensorboard": {"logger": lambda folder: TensorBoardLogger(folder, name="board", version=0)},
    "fast-dev-run": {"fast_dev_run": 3},
    "early-stopping": {"callbacks": lambda: [EarlyStopping("val_loss", patience=1)]},
    "weight-averaging": {"callbacks": lambda: [WeightAveraging()]},
    "ema": {"callbacks": lambda: [EMAWeightAveraging(decay=0.9)]},
    "swa": {
        "max_epochs": 3,
        "callbacks": lambda: [StochasticWeightAveraging(1e-3, swa_epoch_start=1, annealing_epochs=1)],
    },
    "backbone-finetuning": {"callbacks": lambda: [BackboneFinetuning(1)]},
    "batch-size-finder": {"callbacks": lambda: [BatchSizeFinder(max_trials=2, init_val=8, steps_per_trial=1)]},
    "lr-finder": {"callbacks": lambda: [LearningRateFinder(num_training_steps=4)]},
    "checkpointing": {"net": {"twist": "checkpoint"}},
    "reentrant-checkpointing": {"net": {"twist": "reentrant"}},
    "in-place": {"net": {"twist": "in-place"}},
    "hooks": {"net": {"twist": "hooks"}},
    "tensor-hook": {"net": {"twist": "tensor-hook"}},
    "node-hook": {"net": {"twist": "node-hook"}},
    "function-mode": {"net": {"twist": "function-mode"}},
    "dispatch-mode": {"net": {"twist": "dispatch-mode"}},
    "saved-tensors": {"net": {"twist": "saved-tensors"}},
    "saved-on-cpu": {"net": {"twist": "on-cpu"}},
    "fit-in-a-function-mode": {"scope": Tally},
    "fit-in-a-dispatch-mode": {"scope": Operators},
    "fit-under-the-flop-counter": {"scope": counting_flops},
    "anomaly": {"detect_anomaly": True},
    "deterministic": {"deterministic": True},
    "no-inference-mode": {"inference_mode": False},
    "compiled-part": {"change": compiled("part")},
    "compiled-module": {"change": compiled("module"), "net": {"twist": "silent"}},
    "resume": {"resume": True},
    "two-fits": {"fits": 2},
}


def run(name: str, watchdog: SanityWatchdog | None, folder: Path, fault: str = "", steps: int = 12) -> dict[str, str]:
    """Everything that a run leaves behind, as hashes."""
    configuration = dict(CONFIGURATIONS[name])
    net_arguments, fits = configuration.pop("net", {}), configuration.pop("fits", 1)
    change, resume = configuration.pop("change", lambda net: net), configuration.pop("resume", False)
    more, scope = configuration.pop("callbacks", list), configuration.pop("scope", contextlib.nullcontext)
    logger = configuration.pop("logger", lambda folder: CSVLogger(folder, name="csv", version=0))
    if "plugins" in configuration:
        configuration["plugins"] = [configuration["plugins"]()]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    NOTES.clear()
    threads = set(threading.enumerate())
    L.seed_everything(7, verbose=False)
    net = Net(**net_arguments, fault=fault)
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": steps,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "logger": logger(folder),
        **configuration,
    }
    dogs = [watchdog] if watchdog else []
    whole = change(net)
    for fit in range(fits + resume):
        saver = ModelCheckpoint(folder, filename=f"{fit}", every_n_train_steps=steps // 2, save_top_k=-1)
        trainer = L.Trainer(
            callbacks=[*dogs, *more(), saver], **{**settings, "max_steps": steps + 6 * (fit and resume)}
        )
        with scope():
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
        "notes": digest(NOTES),
        "hooks": digest(hooks_of(net)),
        "modes": digest([m.training for m in net.modules()]),
        "graphs": repr(dict(torch._dynamo.utils.counters["stats"])),
        "strategy": digest(sorted(vars(trainer.strategy))),
    }
    found |= process(threads)
    torch.use_deterministic_algorithms(False)
    return found | left_on_disk(folder)


def left_on_disk(folder: Path) -> dict[str, str]:
    """Each of the user's files: its bytes; of event files, which carry the time, what the user wrote."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != "watchdog"):
        if path.name.startswith("events."):
            found[f"events in {path.parent.name}"] = digest(users_events(path))
        elif path.suffix == ".ckpt":
            found[path.name] = digest(torch.load(path, weights_only=False))
        else:
            found[path.relative_to(folder).as_posix()] = digest(path.read_bytes())
    return found


def users_events(path: Path) -> list[Any]:
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if not tag.startswith("watchdog/")]
    return [(tag, [(e.step, e.value) for e in events.Scalars(tag)]) for tag in tags]
