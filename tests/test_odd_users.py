"""Users who are odd, and models and batches that hurt when they are looked at: their run ends as it does without us."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

from sanity_watchdog import SanityWatchdog

from .outcomes import assert_same, outcome
from .runs import Classifier, assert_awake, blobs, loader, mlp, trainer
from .test_harmless_ends import Broken, codes_in

JUDGED = 10


@pytest.mark.parametrize("inner_watched", [False, True])
@pytest.mark.parametrize("batch", [0, 4])
def test_a_fit_within_a_step(inner_watched: bool, batch: int) -> None:
    inner: list[SanityWatchdog] = []

    class Nesting(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == self.when:
                dogs = [SanityWatchdog(fail_on="error")] if self.nested_watched else []
                inner.extend(dogs)
                with torch.enable_grad():
                    trainer(*dogs, max_steps=3).fit(Classifier(), loader(*blobs(64)))
            return super().training_step(batch, batch_idx)

    Nesting.when, Nesting.nested_watched = batch, inner_watched  # type: ignore[attr-defined]
    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    watched = outcome(dog, module=Nesting, max_epochs=3)
    Nesting.nested_watched = False  # type: ignore[attr-defined]
    assert_same(watched, outcome(module=Nesting, max_epochs=3))
    assert_awake(dog, JUDGED)
    for one in inner:
        assert_awake(one, JUDGED)


class Touchy(nn.Linear):
    """Looking at it hurts."""

    @property
    def running_mean(self) -> Tensor:
        raise RuntimeError("do not look")

    @property
    def p(self) -> float:
        raise ValueError("do not look")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("weight", "bias", "in_features", "out_features", "training"):
            return super().__getattr__(name)
        raise KeyError(name)


class TouchyModule(Classifier):
    """So does looking at the LightningModule."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(Touchy(20, 32), nn.ReLU(), Touchy(32, 10)))

    @property
    def secret(self) -> Any:
        raise RuntimeError("do not look")

    @property
    def scaler(self) -> Any:
        raise ZeroDivisionError


def test_a_model_whose_attributes_raise_when_looked_at() -> None:
    dog = SanityWatchdog(fail_on="error", every_n_steps=1, targets=("mps", "tpu"))
    assert_same(outcome(dog, module=TouchyModule), outcome(module=TouchyModule))
    assert_awake(dog, JUDGED)


class Nameless(nn.Linear):
    """Tells nobody what it holds; torch asks the modules around it."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("do not ask")

    named_buffers = named_parameters


def test_a_part_that_does_not_name_its_parameters() -> None:
    def build() -> Classifier:
        return Classifier(nn.Sequential(Nameless(20, 32), nn.ReLU(), nn.Linear(32, 10)))

    dog = SanityWatchdog(fail_on="error", every_n_steps=1, targets=("mps", "tpu"))
    assert_same(outcome(dog, module=build), outcome(module=build))
    assert_awake(dog, JUDGED)


class Drifting(nn.Module):
    """A parametrization that is another one each time it is evaluated, as spectral norm's is in training."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.factor.mul_(1.0001)
        return x * self.factor


class Parametrized(Classifier):
    """One layer of each kind, most units of one dead; parameters whose name contains ``what`` drift."""

    def __init__(self, what: str) -> None:
        super().__init__(nn.ModuleDict())
        self.first, self.norm, self.dead = nn.Linear(20, 32), nn.BatchNorm1d(32), nn.Linear(32, 32)
        self.table, self.cells = nn.Embedding(32, 32), nn.LSTM(32, 32, batch_first=True)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.last = nn.Sequential(nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 10))
        nn.init.constant_(self.dead.bias[:30], -50.0)
        for module in (m for m in list(self.modules()) if m is not self):
            for name in [n for n, p in module._parameters.items() if p is not None and what in n]:
                parametrize.register_parametrization(module, name, Drifting(), unsafe=True)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        x = self.dead(self.norm(self.first(x)).relu()).relu() + self.table(torch.arange(len(x)))
        x = self.cells(x[:, None])[0]
        return self.loss(self.last(self.attention(x, x, x)[0][:, 0]), y)


@pytest.mark.parametrize("what", ["weight", "bias", ""])
@pytest.mark.parametrize("every", [1, 101])
def test_parametrizations_are_evaluated_by_the_run_alone(what: str, every: int) -> None:
    dog = SanityWatchdog(fail_on=None, every_n_steps=every, targets=("mps", "tpu", "cuda"))
    settings: dict[str, Any] = {"module": lambda: Parametrized(what), "max_steps": 40, "max_epochs": -1}
    settings["limit_val_batches"] = 0
    assert_same(outcome(dog, **settings), outcome(**settings))
    assert_awake(dog, 20)
    assert "WD214" in {a.code for a in dog.alerts}


class Private:
    """Raises at everything that is not its owner's business."""

    def _no(self, *args: Any) -> Any:
        raise RuntimeError("do not look")

    __repr__ = __str__ = __bool__ = __eq__ = __len__ = __iter__ = __reduce_ex__ = _no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("do not look")


class Guarded(Classifier):
    """Private things in a module, an optimizer and a schedule; what they print as raises."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["private"] = Private()
        self.__dict__["several"] = [Private(), {"a": Private()}]

    def __repr__(self) -> str:
        raise RuntimeError("do not look")

    def extra_repr(self) -> str:
        raise RuntimeError("do not look")

    def configure_optimizers(self) -> Any:
        class Own(torch.optim.SGD):
            def __repr__(self) -> str:
                raise RuntimeError("do not look")

        class Schedule(torch.optim.lr_scheduler.LambdaLR):
            def __repr__(self) -> str:
                raise RuntimeError("do not look")

            def get_last_lr(self) -> Any:
                raise RuntimeError("do not look")

        groups = [{"params": list(self.parameters()), "private": Private(), "betas": Private()}]
        optimizer = Own(groups, 0.1)
        schedule = Schedule(optimizer, lambda step: 0.9**step)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_a_module_and_an_optimizer_that_hide_things() -> None:
    dog = SanityWatchdog(fail_on="error", every_n_steps=1, targets=("mps", "tpu"))
    assert_same(outcome(dog, module=Guarded), outcome(module=Guarded))
    assert_awake(dog, JUDGED)


class Closed(Dataset[tuple[Tensor, Tensor]]):
    """Data that give their items and nothing else."""

    def __init__(self) -> None:
        self.__dict__["tensors_of"] = blobs(96)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.__dict__["tensors_of"]
        return x[index], y[index]

    def __len__(self) -> int:
        return 96

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("do not look")

    def __repr__(self) -> str:
        raise RuntimeError("do not look")


class Drawing(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        return iter(torch.randperm(96).view(-1, 16).tolist())

    def __len__(self) -> int:
        return 6

    @property
    def batch_size(self) -> Any:
        raise ValueError("do not look")

    def __repr__(self) -> str:
        raise ValueError("do not look")

    __eq__ = __contains__ = __repr__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Lengthless(DataLoader[Any]):
    """A loader that does not know how long it is."""

    def __len__(self) -> int:
        raise TypeError("nobody knows")


@pytest.mark.parametrize("kind", ["dataset", "sampler", "length"])
def test_data_that_hide_things(kind: str) -> None:
    def data() -> Any:
        if kind == "dataset":
            return DataLoader(Closed(), 16)
        if kind == "sampler":
            return DataLoader(TensorDataset(*blobs(96)), batch_sampler=Drawing())
        return Lengthless(TensorDataset(*blobs(96)), 16)

    dog = SanityWatchdog(fail_on="error", every_n_steps=1, save_batches=True)
    plain = outcome(data=data, max_epochs=2)
    assert_same(outcome(dog, data=data, max_epochs=2), plain)
    assert not plain.error
    assert_awake(dog, JUDGED)


NAMES = ("a|b", "line\nbreak", "long" * 2_500, "\ud800", "", " ", "|", "<b>&", "日本語", "x]['y")


class OddNames(Classifier):
    """Parameters under names that no file format likes, with a gradient and outside the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.Module()
        for name in NAMES:
            self.odd._parameters[name] = nn.Parameter(torch.ones(3, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        penalty = sum(p.square().mean() for p in self.odd._parameters.values() if p is not None)
        return super().training_step(batch, batch_idx) + 1e-3 * penalty

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.net.parameters(), 1e-3)


def test_names_that_no_file_format_likes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def settings(name: str) -> dict[str, Any]:
        return {"logger": TensorBoardLogger(tmp_path / name, name="", version=0), "default_root_dir": tmp_path / name}

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    assert_same(outcome(dog, module=OddNames, **settings("watched")), outcome(module=OddNames, **settings("plain")))
    assert_awake(dog, JUDGED)
    found = next(a for a in dog.alerts if a.code == "WD311")
    assert len(found.subjects) == len(NAMES)
    assert "cannot write" not in capsys.readouterr().err
    record = next((tmp_path / "watched").rglob("watchdog.jsonl"))
    assert "WD311" in codes_in(map(json.loads, record.read_text().splitlines()))
    done = subprocess.run(
        [sys.executable, "-m", "sanity_watchdog", "report", record, "--format", "junit"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-2000:]


class Shy:
    """A batch that can only be used as its owner does."""

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.x = torch.stack([x for x, _ in samples])
        self.y = torch.stack([y for _, y in samples])

    def __iter__(self) -> Any:
        raise RuntimeError("do not iterate")

    __len__ = __getitem__ = __contains__ = __bool__ = __eq__ = __iter__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "to":
            raise AttributeError(name)
        raise ValueError(name)


class Slotted:
    """A batch without a ``__dict__``."""

    __slots__ = ("x", "y")

    def __init__(self, samples: list[tuple[Tensor, Tensor]]) -> None:
        self.x = torch.stack([x for x, _ in samples])
        self.y = torch.stack([y for _, y in samples])


class Owner(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.net(batch.x), batch.y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.loss(self.net(batch.x), batch.y)


@pytest.mark.parametrize("kind", [Shy, Slotted])
def test_a_batch_that_raises_when_looked_at(kind: type) -> None:
    def data() -> DataLoader[Any]:
        return loader(*blobs(96), collate_fn=kind)

    dog = SanityWatchdog(fail_on="error", every_n_steps=1, save_batches=True)
    assert_same(outcome(dog, module=Owner, data=data), outcome(module=Owner, data=data))
    assert_awake(dog, JUDGED)


def test_an_output_that_raises_when_looked_at() -> None:
    class Odd(dict[str, Any]):
        def __iter__(self) -> Any:
            raise RuntimeError("do not iterate")

        def values(self) -> Any:
            raise RuntimeError("do not look")

    class Returning(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return Odd(loss=super().training_step(batch, batch_idx))

    dog = SanityWatchdog(fail_on="error", every_n_steps=1)
    assert_same(outcome(dog, module=Returning), outcome(module=Returning))
    assert_awake(dog, JUDGED)


def test_a_planted_fault_alerts_in_the_same_setting() -> None:
    dog = SanityWatchdog(fail_on=None)
    outcome(dog, module=lambda: Broken(mlp()))
    assert "WD102" in {a.code for a in dog.alerts}
