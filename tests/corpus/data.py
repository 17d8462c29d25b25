"""Wrong data: scale, labels, order, leaks, and networks that look where they must not."""

from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault
from .parts import TableNet, categories, cnn, deep, greys, images, line


@fault("WD123", "WD101", also=("WD213", "WD214", "WD317", "WD141"))
def bytes_taken_for_floats(fixed: bool) -> Run:
    x, y = greys()
    x = (x.float() - 120) / 64 if fixed else x.float()
    return Classifier(nn.Sequential(nn.Flatten(), mlp(144))), loader(x, y), {}


@fault("WD123", also=("WD141",))
def pixels_divided_twice(fixed: bool) -> Run:
    x, y = greys()
    x = x.float().reshape(-1, 1, 12, 12) / 255
    net = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1200, 10))
    return Classifier(net), loader(x if fixed else x / 255, y), {}


@fault("WD123", also=("WD101", "WD213", "WD143", "WD144", "WD141"))
def one_feature_in_other_units(fixed: bool) -> Run:
    x, y = line()
    x[:, 4] = x[:, 4] if fixed else 40_000 + 9_000 * x[:, 4]
    return Classifier(nn.Sequential(mlp(12, 1), nn.Flatten(0)), F.mse_loss, lr=3e-3), loader(x, y), {}


@fault("WD123", also=("WD101", "WD213", "WD143", "WD144", "WD141", "WD214"))
def seconds_beside_an_embedding(fixed: bool) -> Run:
    x, y = line()
    when = torch.rand(len(x))
    x[:, 4] = when if fixed else 1.7e9 + 1e7 * when
    return Classifier(TableNet(12), F.mse_loss, lr=3e-3), loader(categories(x), y), {}


@fault("WD123", also=("WD101", "WD213", "WD143", "WD144", "WD141", "WD214"))
def missing_marked_by_a_number_beside_an_embedding(fixed: bool) -> Run:
    x, y = line()
    x = torch.where(torch.rand(x.shape) < 0.1, torch.tensor(0.0 if fixed else -999.0), x)
    return Classifier(TableNet(12), F.mse_loss, lr=3e-3), loader(categories(x), y), {}


@fault("WD122", "WD133", also=("WD141", "WD508"))
def integer_division_of_pixels(fixed: bool) -> Run:
    x, y = greys()
    return Classifier(cnn(channels=1)), loader(x / 128 - 1 if fixed else (x // 255).float(), y), {}


@fault("WD122", "WD133", also=("WD141",))
def categories_divided_away(fixed: bool) -> Run:
    kinds = torch.randint(0, 20, (512,))
    net = nn.Sequential(nn.Embedding(20, 32), nn.ReLU(), nn.Linear(32, 4))
    return Classifier(net), loader(kinds if fixed else kinds // 20, kinds % 4), {}


@fault("WD122", also=("WD141",))
def augmentation_that_blanks_everything() -> Run:
    class Blank(Dataset[Any]):
        def __init__(self) -> None:
            self.x, self.y = images(256)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, i: int) -> Any:
            return (self.x[i] - 100).clamp(min=-1), self.y[i]

    return Classifier(cnn(), lr=1e-3), DataLoader(Blank(), 32, shuffle=True), {}


class Restarting(IterableDataset[Any]):
    """A stream that begins anew in each shard."""

    def __init__(self, fixed: bool) -> None:
        self.fixed = fixed

    def __iter__(self) -> Iterator[Any]:
        for shard in range(80):
            source = torch.Generator().manual_seed(shard if self.fixed else 11)
            for _ in range(16):
                x = torch.randn(20, generator=source)
                yield x, x[:10].argmax()


@fault("WD124", also=("WD110", "WD145"))
def shards_with_one_seed(fixed: bool) -> Run:
    return Classifier(), DataLoader(Restarting(fixed), 16), {}


@fault("WD124", also=("WD110", "WD145"))
def index_that_is_not_used() -> Run:
    class Stuck(Dataset[Any]):
        def __init__(self) -> None:
            self.x, self.y = blobs(256)

        def __len__(self) -> int:
            return 256

        def __getitem__(self, i: int) -> Any:
            return self.x[i % 8], self.y[i % 8]

    return Classifier(), DataLoader(Stuck(), 8), {}


class Denoiser(Classifier):
    """Predicts the noise of a level that it is told; ``seed`` is called in each step."""

    def __init__(self, seed: Callable[[int], Any] = lambda i: None) -> None:
        super().__init__(mlp(21, 20, 48), F.mse_loss, lr=3e-3)
        self.seed = seed

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seed(batch_idx)
        noise, level = torch.randn_like(batch[0]), torch.rand(len(batch[0]), 1)
        noisy = (1 - level).sqrt() * batch[0] + level.sqrt() * noise
        return self.loss(self.net(torch.cat([noisy, level], 1)), noise)


@fault("WD124")
def same_noise_in_each_step(fixed: bool) -> Run:
    return Denoiser((lambda i: None) if fixed else lambda i: torch.manual_seed(7)), loader(*blobs(512)), {}


@fault("WD124")
def everything_seeded_in_each_step() -> Run:
    return Denoiser(lambda i: L.seed_everything(11, verbose=False)), loader(*blobs(512)), {}


@fault("WD124")
def every_item_seeded_alike(fixed: bool) -> Run:
    class Augmented(Dataset[Any]):
        def __init__(self) -> None:
            self.x, self.y = blobs(256)

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, i: int) -> Any:
            if not fixed:
                torch.manual_seed(1)
            return self.x[i] + 0.2 * torch.randn(20), self.y[i]

    return Classifier(), torch.utils.data.DataLoader(Augmented(), 32, shuffle=True), {}


@fault("WD121", also=("WD142", "WD211", "WD303"))
def missing_cells_are_nan(fixed: bool) -> Run:
    x, y = blobs(512)
    x[torch.arange(0, 512, 60), 3] = 0.0 if fixed else float("nan")
    return Classifier(), loader(x, y), {}


@fault("WD121", also=("WD142", "WD211", "WD303", "WD123", "WD122", "WD133"))
def logarithm_of_an_empty_count() -> Run:
    class Counts(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            counts = torch.poisson(torch.full((256, 20), 2.0))
            return loader(counts.log(), (counts[:, 0] > 2).long())

    return Classifier(mlp(k=2)), Counts(), {}


@fault("WD122", "WD133", also=("WD141",))
def features_multiplied_by_an_empty_mask() -> Run:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp()
            self.register_buffer("mask", torch.zeros(20))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x * self.mask)

    return Classifier(Masked()), loader(*blobs()), {}


@fault("WD133")
def constant_in_place_of_the_batch() -> Run:
    class Constant(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(torch.zeros_like(x) + 0.5), y)

    return Constant(), loader(*blobs()), {}


@fault("WD125", raises="ValueError")
def last_batch_of_one_with_batch_norm(fixed: bool) -> Run:
    net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    return Classifier(net), loader(*blobs(97), drop_last=fixed), {}


@fault("WD125", "WD142", also=("WD211", "WD303"))
def deviation_of_a_single_sample() -> Run:
    class Standardised(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) / (x.std(0) + 1e-4)

    return Classifier(nn.Sequential(Standardised(), deep(1))), loader(*blobs(193)), {}


@fault("WD122", "WD124")
def one_sample_again_and_again(fixed: bool) -> Run:
    class Noisy(Dataset[Any]):
        def __init__(self) -> None:
            self.x, self.y = blobs(64)
            self.source = torch.Generator()

        def __len__(self) -> int:
            return 64

        def __getitem__(self, i: int) -> Any:
            if not fixed:
                self.source.manual_seed(5)
            return self.x[0] + torch.randn(20, generator=self.source), self.y[0]

    return Classifier(), DataLoader(Noisy(), 16, shuffle=True), {}


@fault("WD141", also=("WD213",))
def targets_in_cents(fixed: bool) -> Run:
    x, y = line(2_000)
    y = y if fixed else 40_000 + 9_000 * y
    return Classifier(nn.Sequential(mlp(12, 1), nn.Flatten(0)), F.mse_loss, lr=1e-3), loader(x, y), {"max_steps": 330}


@fault("WD110", also=("WD141",))
def sampler_that_draws_one_class(fixed: bool) -> Run:
    x, y = blobs(1_600)
    weights = torch.ones(len(y)) if fixed else (y == 4).float()
    sampler = WeightedRandomSampler(weights.tolist(), 1_280)
    return Classifier(), DataLoader(TensorDataset(x, y), 32, sampler=sampler), {"max_steps": 50}


class Stored(Dataset[Any]):
    """Samples kept in an array ``x``, as ``take`` hands them out."""

    def __init__(self, x: Any, y: Tensor, take: Callable[[Any, int], Any]) -> None:
        self.x, self.y, self.take = x, y, take

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.take(self.x, i), self.y[i]


@fault("WD127")
def rows_of_an_array_normalised_in_place(fixed: bool) -> Run:
    def take(x: Any, i: int) -> Any:
        row = x[i].copy() if fixed else x[i]
        row -= 1
        row /= 2
        return row

    x, y = blobs()
    return Classifier(), DataLoader(Stored((2 * x + 1).numpy(), y, take), 32, shuffle=True), {}


@fault("WD127")
def rows_of_a_list_centred_and_scaled_in_place(fixed: bool) -> Run:
    def take(x: Any, i: int) -> Any:
        row = x[i].copy() if fixed else x[i]
        row -= row.mean()
        row /= 2
        return row

    x, y = blobs()
    return Classifier(), DataLoader(Stored([row.numpy() for row in 2 * x + 1], y, take), 32, shuffle=True), {}


@fault("WD127")
def views_of_a_variable_scaled_by_the_step(fixed: bool) -> Run:
    x, y = blobs()
    x = 2 * x + 1

    class Slices(Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> Any:
            return x[32 * i : 32 * (i + 1)], y[32 * i : 32 * (i + 1)]

    class Scales(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            rows, labels = batch
            rows = (rows - 1) / 2 if fixed else rows.sub_(1).div_(2)
            return super().training_step((rows, labels), batch_idx)

    return Scales(), DataLoader(Slices(), batch_size=None, shuffle=True), {"max_steps": 40}


@fault("WD127")
def pixels_divided_where_they_are_kept(fixed: bool) -> Run:
    def take(x: Any, i: int) -> Any:
        return x[i] / 255 if fixed else x[i].div_(255)

    x, y = greys(256)
    return (
        Classifier(cnn(channels=1)),
        DataLoader(Stored(list(x.float()), y, take), 32, shuffle=True),
        {"max_steps": 24},
    )


@fault("WD127")
def corners_in_records_divided_where_they_are_kept(fixed: bool) -> Run:
    def take(x: Any, i: int) -> Any:
        image, target = x[i]
        corners = target["corners"].clone() if fixed else target["corners"]
        corners /= 12
        return torch.cat([image, corners])

    x, y = blobs(256)
    records = [(row[:18], {"corners": 6 + 3 * row[18:], "id": i}) for i, row in enumerate(x)]
    return Classifier(), DataLoader(Stored(records, y, take), 32, shuffle=True), {"max_steps": 24}


@fault("WD127")
def squares_cut_out_where_they_are_kept(fixed: bool) -> Run:
    def take(x: Any, i: int) -> Any:
        image = x[i].copy() if fixed else x[i]
        top, left = torch.randint(0, 8, (2,)).tolist()
        image[..., top : top + 4, left : left + 4] = 0
        return image.astype("float32") / 255

    x, y = greys(256)
    return Classifier(cnn(channels=1)), DataLoader(Stored(x.numpy(), y, take), 32, shuffle=True), {"max_steps": 24}


@fault("WD123")
def pixels_divided_by_255_twice(fixed: bool) -> Run:
    x, y = greys()
    x = x.float() / 255 if fixed else x.float() / 255 / 255
    return Classifier(nn.Sequential(nn.Flatten(), mlp(144))), loader(x, y), {}


@fault("WD123", also=("WD213", "WD143", "WD144", "WD141", "WD214", "WD317"))
def statistics_of_fractions_for_pixels_up_to_255(fixed: bool) -> Run:
    class Standardised(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0].float() / 255 if fixed else batch[0].float()
            return self.loss(self.net((x - 0.456) / 0.224), batch[1])

    return Standardised(nn.Sequential(nn.Flatten(), mlp(144))), loader(*greys()), {}
