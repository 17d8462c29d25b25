"""Trainers made at random: watched and unwatched they end alike, and the watchdog stays awake."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lightning.pytorch.callbacks import GradientAccumulationScheduler, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset

from sanity_watchdog import SanityWatchdog

from .runs import assert_awake, fp16, trainer

EXAMPLES = 25
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05),
    "momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, 1e-3),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, 1e-3, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, 1e-2),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "rprop": lambda p: torch.optim.Rprop(p, 1e-3),
    "lbfgs": lambda p: torch.optim.LBFGS(p, 0.1, max_iter=2),
}
SCHEDULES: dict[str, Any] = {
    "none": None,
    "step": lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 2), "interval": "epoch"},
    "cosine": lambda o: {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(o, 50), "interval": "step"},
    "one-cycle": lambda o: {"scheduler": torch.optim.lr_scheduler.OneCycleLR(o, 0.01, 200), "interval": "step"},
    "plateau": lambda o: {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(o), "monitor": "val_loss"},
}


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclass
class Batch:
    """A batch type of the user's own."""

    x: Tensor
    y: Tensor

    def to(self, *args: Any, **kwargs: Any) -> "Batch":
        return Batch(self.x.to(*args, **kwargs), self.y.to(*args, **kwargs))


def collated(structure: str) -> Any:
    def collate(samples: list[tuple[Tensor, Tensor]]) -> Any:
        x, y = (torch.stack(part) for part in zip(*samples, strict=True))
        return {
            "list": lambda: [x, y],
            "tuple": lambda: (x, y),
            "named": lambda: Pair(x, y),
            "mapping": lambda: {"inputs": {"x": x}, "y": y, "names": ["a"] * len(y)},
            "object": lambda: Batch(x, y),
        }[structure]()

    return collate


def unpacked(batch: Any) -> tuple[Tensor, Tensor]:
    if isinstance(batch, dict):
        return batch["inputs"]["x"], batch["y"]
    if isinstance(batch, Batch):
        return batch.x, batch.y
    return batch[0], batch[1]


class Points(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, n: int, d: int = 12, k: int = 4) -> None:
        generator = torch.Generator().manual_seed(1)
        self.y = torch.randint(0, k, (n,), generator=generator)
        self.x = torch.randn(k, d, generator=generator)[self.y] + torch.randn(n, d, generator=generator)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i] + 0.01 * torch.randn(12), self.y[i]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, n: int) -> None:
        self.points = Points(n)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.points[i] for i in range(len(self.points)))


class Random(L.LightningModule):
    """A small classifier or regressor, as the configuration has it."""

    def __init__(self, made: dict[str, Any]) -> None:
        super().__init__()
        self.made = made
        self.automatic_optimization = not made["manual"]
        middle: list[nn.Module] = [nn.BatchNorm1d(16)] if made["norm"] else []
        self.net = nn.Sequential(nn.Linear(12, 16), *middle, nn.GELU(), nn.Dropout(made["dropout"]), nn.Linear(16, 4))

    def _loss(self, batch: Any) -> Tensor:
        if self.made["combined"] != "no" and self.training:
            batch = batch["one"]
        x, y = unpacked(batch)
        x = x.to(self.dtype)
        again = self.made["checkpointing"] and self.training
        out = checkpoint(self.net, x, use_reentrant=False) if again else self.net(x)
        return F.mse_loss(out.float(), F.one_hot(y, 4).float()) if self.made["regression"] else F.cross_entropy(out, y)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self._loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, batch_size=4)
        if self.automatic_optimization:
            return {"loss": loss, "more": loss.detach()} if self.made["mapping_output"] else loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log(f"val_loss{dataloader_idx or ''}", self._loss(batch), batch_size=4, add_dataloader_idx=False)

    def configure_optimizers(self) -> Any:
        optimizer = OPTIMIZERS[self.made["optimizer"]](self.net.parameters())
        if self.made["broken"]:
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        schedule = None if self.made["broken"] else SCHEDULES[self.made["schedule"]]
        return optimizer if schedule is None else {"optimizer": optimizer, "lr_scheduler": schedule(optimizer)}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Those that Lightning itself accepts."""
    manual = draw(st.booleans())
    half = draw(st.sampled_from(["32-true", "bf16-mixed", "bf16-true", "64-true", "16-mixed"]))
    optimizer = draw(st.sampled_from(sorted(OPTIMIZERS)))
    if optimizer == "lbfgs" and (manual or half == "16-mixed"):  # a closure, which a loss scaler cannot have
        optimizer = "sgd"
    clip = draw(st.sampled_from([None, (0.5, "norm"), (0.1, "value")]))
    if manual or optimizer in ("lbfgs", "adamw-fused"):
        clip = None
    validated = draw(st.sampled_from(["one", "one", "two", "none"]))
    schedule = draw(st.sampled_from([name for name in sorted(SCHEDULES) if validated == "one" or name != "plateau"]))
    if schedule == "one-cycle" and optimizer not in ("momentum", "adam", "adamw-foreach", "adamw-fused", "nadam"):
        schedule = "cosine"
    accumulate = 1 if manual else draw(st.sampled_from([1, 1, 2, 3, {0: 1, 1: 2}]))
    return {
        "manual": manual,
        "precision": half,
        "optimizer": optimizer,
        "schedule": "none" if manual else schedule,
        "clip": clip,
        "accumulate": accumulate,
        "regression": draw(st.booleans()),
        "norm": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.3])),
        "mapping_output": draw(st.booleans()),
        "structure": draw(st.sampled_from(["list", "tuple", "named", "mapping", "object"])),
        "stream": draw(st.booleans()),
        "shuffle": draw(st.booleans()),
        "drop_last": draw(st.booleans()),
        "samples": draw(st.integers(17, 50)),
        "logger": draw(st.sampled_from(["none", "csv", "tensorboard", "both"])),
        "every": draw(st.sampled_from([1, 3, 101])),
        "sanity": draw(st.integers(0, 2)),
        "check": draw(st.sampled_from([1.0, 0.5])),
        "anomaly": draw(st.booleans()),
        "epochs": draw(st.integers(1, 3)),
        "validation": validated,
        "combined": draw(st.sampled_from(["no", "no", "no", "min_size", "max_size_cycle"])),
        "limit": draw(st.sampled_from([None, None, 3, 0.5])),
        "overfit": draw(st.sampled_from([0, 0, 0, 2])),
        "reload": draw(st.sampled_from([0, 0, 1])),
        "inference": draw(st.booleans()),
        "checkpointing": draw(st.booleans()),
    }


def run(made: dict[str, Any], folder: Path, dog: SanityWatchdog | None, broken: bool = False) -> dict[str, Any]:
    """How the seeded run ends, in numbers that compare exactly; ``broken``: every learning rate is zero."""
    L.seed_everything(5, verbose=False)
    net = Random(made | {"broken": broken})
    stream, shuffle = made["stream"], made["shuffle"] and not made["stream"]
    loaders = [
        DataLoader(
            Stream(made["samples"]) if stream else Points(made["samples"]),
            batch_size=4,
            shuffle=shuffle and training,
            drop_last=made["drop_last"] or made["norm"],
            collate_fn=collated(made["structure"]),
        )
        for training in (True, False)
    ]
    train, val = loaders
    if made["combined"] != "no":
        train = CombinedLoader({"one": train, "other": DataLoader(Points(11), batch_size=2)}, made["combined"])
    validation = {"one": val, "two": [val, val], "none": None}[made["validation"]]
    writers = {"csv": [CSVLogger(folder, name="csv", version=0)], "tensorboard": [TensorBoardLogger(folder, version=0)]}
    loggers = {"none": False, "both": [*writers["csv"], *writers["tensorboard"]], **writers}[made["logger"]]
    callbacks: list[L.Callback] = [] if dog is None else [dog]
    callbacks += [LearningRateMonitor("step")] if loggers else []
    more: dict[str, Any] = {"precision": made["precision"]}
    if made["precision"] == "16-mixed":
        more = {"plugins": [fp16()]}
    if isinstance(made["accumulate"], dict):
        callbacks.append(GradientAccumulationScheduler(made["accumulate"]))
    else:
        more["accumulate_grad_batches"] = made["accumulate"]
    if made["clip"]:
        more |= {"gradient_clip_val": made["clip"][0], "gradient_clip_algorithm": made["clip"][1]}
    fit = trainer(
        *callbacks,
        max_steps=-1,
        max_epochs=made["epochs"],
        logger=loggers,
        log_every_n_steps=2,
        num_sanity_val_steps=made["sanity"],
        val_check_interval=1.0 if stream or made["limit"] or made["overfit"] else made["check"],
        limit_train_batches=1.0 if made["limit"] is None or (stream and made["limit"] == 0.5) else made["limit"],
        overfit_batches=made["overfit"],
        reload_dataloaders_every_n_epochs=made["reload"],
        inference_mode=made["inference"],
        detect_anomaly=made["anomaly"],
        default_root_dir=folder,
        **more,
    )
    error = ""
    try:
        fit.fit(net, train, validation)
    except Exception as e:  # noqa: BLE001
        error = f"{type(e).__name__}: {e}"
    csv = sorted(folder.rglob("metrics.csv"))
    return {
        "error": error,
        "weights": {name: t.clone() for name, t in net.state_dict().items()},
        "optimizers": [o.state_dict() for o in fit.optimizers],
        "metrics": dict(fit.callback_metrics),
        "generator": torch.get_rng_state(),
        "steps": fit.global_step,
        "csv": [path.read_text() for path in csv],
    }


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
        )
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) or (one != one and other != other)  # NaN


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # shrinking would train for minutes
    suppress_health_check=list(HealthCheck),
)
@given(configurations())
def test_random_trainers_end_alike_and_are_watched(made: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = run(made, Path(folder) / "plain", None)
        dog = SanityWatchdog(fail_on=None, every_n_steps=made["every"], targets=("mps", "tpu"))
        watched = run(made, Path(folder) / "watched", dog)
    assert not plain["error"], plain["error"]
    for name, value in plain.items():
        assert equal(watched[name], value), name
    assert_awake(dog)
    assert "WD001" not in {a.code for a in dog.alerts}
    if plain["steps"] > 2:
        dog = SanityWatchdog(fail_on=None)
        with tempfile.TemporaryDirectory() as folder:
            run(made, Path(folder), dog, broken=True)
        assert "WD501" in {a.code for a in dog.alerts}
