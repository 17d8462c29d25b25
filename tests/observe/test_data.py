"""Data in real runs: what enters the model, repeated batches, the last batch."""

from collections.abc import Iterator
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, mlp, watched

K = 10


def images(n: int = 128, s: int = 8) -> tuple[Tensor, Tensor]:
    y = torch.randint(0, K, (n,))
    x = torch.randn(K, 1, s, s)[y] + torch.randn(n, 1, s, s)
    return (x * 40 + 125).clamp(0, 255).round(), y


def flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), *layers)


class Scaling(nn.Module):
    """Divides in ``forward``."""

    def forward(self, x: Tensor) -> Tensor:
        return (x / 255 - 0.5) / 0.2


def conv(norm: bool) -> nn.Sequential:
    middle = [nn.BatchNorm2d(8)] if norm else []
    return nn.Sequential(nn.Conv2d(1, 8, 3), *middle, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, K))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x[:, 0])[0][:, -1])


def skewed(scale: float) -> tuple[Tensor, Tensor]:
    x, y = blobs(128)
    x[:, 3] *= scale
    return x, y


@pytest.mark.parametrize(
    ("net", "data", "found"),
    [
        (flat(mlp(64)), images(), True),
        (conv(norm=False), images(), True),
        (Recurrent(), images(), True),
        (flat(Scaling(), mlp(64)), images(), False),
        (flat(nn.BatchNorm1d(64), mlp(64)), images(), False),
        (flat(nn.LayerNorm(64), mlp(64)), images(), False),
        (conv(norm=True), images(), False),
        (mlp(), skewed(1e4), True),
        (mlp(), skewed(10.0), False),
        (nn.Sequential(nn.Embedding(5000, 8), nn.Flatten(), nn.Linear(32, K)), None, False),
    ],
    ids=[
        "pixels",
        "pixels conv",
        "pixels rnn",
        "scaled inside",
        "batch norm",
        "layer norm",
        "conv and norm",
        "table",
        "even",
        "ids",
    ],
)
def test_unscaled_input(net: nn.Module, data: Any, found: bool) -> None:
    torch.manual_seed(0)
    data = (torch.randint(0, 5000, (128, 4)), torch.randint(0, K, (128,))) if data is None else data
    dog = watched(Classifier(net), loader(*data), max_steps=2)
    assert_awake(dog)
    assert ("WD123" in codes(dog)) == found
    assert "WD123" in dog.summary.judged


class Attached(nn.Module):
    """A table whose last column is an id that an embedding takes; its result is attached to the rest or added."""

    def __init__(self, added: bool = False, normalised: bool = False) -> None:
        super().__init__()
        self.added, self.ids = added, nn.Embedding(4, 19 if added else 4)
        norm = nn.LayerNorm(23) if normalised else nn.Identity()
        self.net = nn.Sequential(norm, mlp(19 if added else 23))

    def forward(self, x: Tensor) -> Tensor:
        h = self.ids((x[:, -1].abs() % 4).long())
        return self.net(x[:, :-1] + h if self.added else torch.cat([x[:, :-1], h], 1))


@pytest.mark.parametrize(
    ("net", "scale", "found"),
    [
        pytest.param(Attached(), 1e4, True, id="attached"),
        pytest.param(Attached(), 10.0, False, id="even"),
        pytest.param(Attached(normalised=True), 1e4, False, id="normalised"),
        pytest.param(Attached(added=True), 10.0, False, id="added"),
    ],
)
def test_a_table_beside_an_embedding(net: nn.Module, scale: float, found: bool) -> None:
    torch.manual_seed(0)
    dog = watched(Classifier(net), loader(*skewed(scale)), max_steps=2)
    assert_awake(dog)
    assert ("WD123" in codes(dog)) == found
    assert "WD123" in dog.summary.judged


class OneSample(Dataset[tuple[Tensor, Tensor]]):
    """Ignores its index."""

    def __init__(self) -> None:
        self.x, self.y = blobs(128)

    def __len__(self) -> int:
        return 128

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[0], self.y[i]


def test_constant_input_and_its_fix() -> None:
    x, y = images()
    faulty = watched(Classifier(conv(True)), loader((x.to(torch.uint8) // 255).float(), y), max_steps=2)
    same = watched(Classifier(), DataLoader(OneSample(), 32), max_steps=2)
    fixed = watched(Classifier(conv(True)), loader(x / 255, y), max_steps=2)
    assert codes(faulty) == codes(same) == ["WD122"]
    assert "all 32 samples are the same" in same.alerts[0].message
    assert not codes(fixed)
    assert "WD122" in fixed.summary.judged


class Masked(L.LightningModule):
    """An informative input beside a constant mask."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.gate = mlp(), nn.Linear(20, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, mask, y = batch
        return F.cross_entropy(self.net(x) * self.gate(mask).sigmoid(), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-3)


def test_a_constant_mask_beside_the_data_is_quiet() -> None:
    x, y = blobs()
    dog = watched(Masked(), loader(x, torch.ones_like(x), y), max_steps=2)
    assert_awake(dog)
    assert not codes(dog)


class Shards(IterableDataset[tuple[Tensor, Tensor]]):
    """Begins anew every ``period`` batches of 16."""

    def __init__(self, period: int) -> None:
        self.period = period

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(64):
            g = torch.Generator().manual_seed(0)
            for _ in range(16 * self.period):
                x = torch.randn(20, generator=g)
                yield x, x[:K].argmax()


@pytest.mark.parametrize(("period", "found"), [(1, True), (3, True), (64, False)])
def test_a_stream_that_repeats_itself(period: int, found: bool) -> None:
    dog = watched(Classifier(), DataLoader(Shards(period), 16), max_steps=14)
    assert_awake(dog)
    assert ("WD124" in codes(dog)) == found
    assert "WD124" in dog.summary.judged


def test_epochs_of_a_few_batches_may_repeat() -> None:
    for kwargs in ({"overfit_batches": 1}, {}):
        dog = watched(Classifier(), loader(*blobs(64), shuffle=False), max_steps=14, max_epochs=-1, **kwargs)
        assert_awake(dog)
        assert "WD124" not in codes(dog)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        self.x, self.y = blobs(64)
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i] + torch.as_tensor(self.rng.normal(size=20), dtype=torch.float32), self.y[i]


def test_a_generator_copied_into_workers() -> None:
    dog = watched(Classifier(), DataLoader(Noisy(), 16, num_workers=2), max_steps=1)
    (alert,) = [a for a in dog.alerts if a.code == "WD124"]
    assert alert.subjects == ("dataset.rng",)


class Dummy(L.LightningModule):
    """Makes its own data; the batch is a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.net(torch.randn(16, 20)).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-3)


def test_a_batch_that_is_not_used_may_repeat() -> None:
    dog = watched(Dummy(), DataLoader(torch.arange(20.0).expand(640, 20), 16), max_steps=14)
    assert_awake(dog)
    assert not codes(dog)
    assert dog.summary.skipped["WD124"] == "no tensor of the batch meets a weight"


NORM = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, K))
SEQUENCES = nn.Sequential(nn.Unflatten(1, (4, 5)), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(20, K))


@pytest.mark.parametrize(
    ("net", "n", "kwargs", "found"),
    [
        (NORM, 65, {}, True),
        (NORM, 64, {}, False),
        (NORM, 66, {}, False),
        (NORM, 65, {"drop_last": True}, False),
        (SEQUENCES, 65, {}, False),
        (mlp(), 65, {}, False),
    ],
    ids=["one left", "even", "two left", "dropped", "sequences", "no norm"],
)
def test_a_last_batch_of_one(net: nn.Module, n: int, kwargs: dict[str, Any], found: bool) -> None:
    dog = watched(Classifier(net), loader(*blobs(n), **kwargs), max_steps=1)
    assert_awake(dog)
    assert ("WD125" in codes(dog)) == found


def test_a_last_batch_that_the_run_never_reaches_is_quiet() -> None:
    dog = watched(Classifier(NORM), loader(*blobs(65)), limit_train_batches=2, max_epochs=1)
    assert_awake(dog)
    assert "WD125" not in codes(dog)


def test_manual_optimisation_shows_the_first_inputs_too() -> None:
    torch.manual_seed(0)
    dog = watched(Manual(flat(mlp(64))), loader(*images()), max_steps=2)
    assert_awake(dog)
    assert "WD123" in codes(dog)


def test_nan_that_the_model_masks_is_no_alarm() -> None:
    x, y = blobs(128)
    x[::5, 2] = float("nan")

    class Imputing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step((batch[0].nan_to_num(), batch[1]), batch_idx)

    dog = watched(Imputing(), loader(x, y), max_steps=4)
    assert_awake(dog)
    assert not codes(dog)
    assert codes(dog, Severity.INFO) == ["WD121"]


class Packed(L.LightningModule):
    """A bidirectional recurrent network on packed sequences that come straight from the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.GRU(4, 32, batch_first=True, bidirectional=True), nn.Linear(64, 3)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, lengths, y = batch
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return F.cross_entropy(self.head(torch.cat(list(self.body(packed)[1]), 1)), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def test_the_state_of_a_recurrent_layer_is_not_its_input() -> None:
    x, lengths = torch.randn(256, 15, 4), torch.randint(3, 16, (256,))
    dog = watched(Packed(), loader(x, lengths, (x[:, :3].mean((1, 2)) * 3).long().clamp(-1, 1) + 1), max_steps=6)
    assert_awake(dog)
    assert codes(dog) == []
    blank = watched(Packed(), loader(torch.ones_like(x), lengths, torch.randint(0, 3, (256,))), max_steps=6)
    assert "WD122" in codes(blank)


def test_samples_that_no_loader_has_made_batches_of() -> None:
    x, y = blobs(64)
    dog = watched(Classifier(), torch.utils.data.TensorDataset(x, y), max_steps=8)
    assert_awake(dog)
    assert codes(dog) == []


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_a_sparse_batch_is_left_alone(layout: str) -> None:
    class Sparse(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            return F.cross_entropy(torch.sparse.mm(x, self.net[0].weight.T) + self.net[0].bias, y)

    x, y = blobs(256)
    made = [(getattr(x[i : i + 32], layout)(), y[i : i + 32]) for i in range(0, 256, 32)]
    dog = watched(Sparse(nn.Sequential(nn.Linear(20, 10))), DataLoader(made, None), max_steps=8)
    assert_awake(dog)
    assert codes(dog) == []
