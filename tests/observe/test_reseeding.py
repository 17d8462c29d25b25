"""Loading that sets the global generator, under a real Trainer."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

from tests.runs import Classifier, assert_awake, blobs, codes, mlp, watched

Seed = Callable[[int], Any]


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Each sample gets noise, after ``seed`` was called with its index."""

    def __init__(self, seed: Seed) -> None:
        self.x, self.y = blobs(128)
        self.seed = seed

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        self.seed(i)
        return self.x[i] + 0.2 * torch.randn(20), self.y[i]


class Forked(Augmented):
    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(i)
            return super().__getitem__(i)


class FirstTime:
    """Seeds when it is called first."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, i: int) -> None:
        if not self.done:
            torch.manual_seed(0)
        self.done = True


class ByEpoch(RandomSampler):
    epoch = 0

    def __iter__(self) -> Iterator[int]:
        torch.manual_seed(self.epoch)
        self.epoch += 1
        return super().__iter__()


def nothing(i: int) -> None:
    pass


def constant(i: int) -> None:
    torch.manual_seed(0)


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.Dropout(0.2), nn.Linear(32, 10))


def collated(rows: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    x, y = (torch.stack(part) for part in zip(*rows, strict=True))
    return x + 0.1 * torch.randn_like(x), y


def fit(data: Dataset[Any], net: nn.Module, batch_size: int = 16, **kwargs: Any) -> Any:
    own = {k: kwargs.pop(k) for k in ("sampler", "collate_fn") if k in kwargs}
    rows = DataLoader(data, batch_size, shuffle=None if "sampler" in own else True, **own)
    return watched(Classifier(net), rows, max_steps=24, max_epochs=-1, **kwargs)


@pytest.mark.parametrize("net", [mlp, dropping], ids=["settled-net", "drawing-net"])
@pytest.mark.parametrize(
    "build",
    [lambda net: fit(Augmented(constant), net), lambda net: fit(Augmented(nothing), net, collate_fn=collated)],
    ids=["item", "batch"],
)
def test_loading_that_always_seeds(build: Any, net: Any) -> None:
    dog = build(net())
    assert codes(dog) == ["WD124"]
    assert "loading seeds the generator" in dog.alerts[0].message


@pytest.mark.parametrize("net", [mlp, dropping], ids=["settled-net", "drawing-net"])
@pytest.mark.parametrize(
    "build",
    [
        lambda net: fit(Augmented(nothing), net),
        lambda net: fit(Augmented(torch.manual_seed), net),
        lambda net: fit(Augmented(torch.manual_seed), net, overfit_batches=1),
        lambda net: fit(Augmented(FirstTime()), net),
        lambda net: fit(Forked(nothing), net),
        lambda net: fit(data := Augmented(nothing), net, sampler=ByEpoch(data)),
    ],
    ids=["none", "index", "one-batch", "once", "forked", "epoch"],
)
def test_seeds_that_differ_are_quiet(build: Any, net: Any) -> None:
    dog = build(net())
    assert_awake(dog)
    assert "WD124" not in codes(dog)
    assert "WD124" in dog.summary.judged


class SeedsSteps(Classifier):
    """Noise on the inputs, after ``seed`` was called in the step."""

    def __init__(self, seed: Callable[[], Any]) -> None:
        super().__init__()
        self.seed = seed

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seed()
        return super().training_step((batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]), batch_idx)


class DrawsOnce(SeedsSteps):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step:
            return Classifier.training_step(self, batch, batch_idx)
        return super().training_step(batch, batch_idx)


class Forks(SeedsSteps):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(42)
            return super().training_step(batch, batch_idx)


def steps(module: Classifier, **settings: Any) -> Any:
    data = DataLoader(Augmented(nothing), 16, **{"shuffle": True, **settings})
    torch.manual_seed(42)
    return watched(module, data, max_steps=24, max_epochs=-1)


def test_steps_that_seed_as_the_run_did_are_told() -> None:
    assert codes(steps(SeedsSteps(lambda: torch.manual_seed(42)))) == ["WD124"]


@pytest.mark.parametrize("module", [SeedsSteps(lambda: None), DrawsOnce(lambda: None), Forks(lambda: None)])
@pytest.mark.parametrize("settings", [{}, {"shuffle": False}], ids=["shuffled", "in-order"])
def test_steps_that_draw_what_they_like_are_quiet(module: Classifier, settings: dict[str, Any]) -> None:
    assert "WD124" not in codes(steps(module, **settings))


def test_workers_that_stay_draw_no_number_for_an_epoch() -> None:
    data = {"shuffle": False, "num_workers": 1, "persistent_workers": True}
    assert "WD124" not in codes(steps(DrawsOnce(lambda: torch.manual_seed(7)), **data))
