"""Healthy runs on data that look odd: bags with one label, pruned weights, rasters, tables beside embeddings."""

from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelPruning
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .data import Denoiser, Stored
from .parts import TableNet, categories, line


class Bags(nn.Module):
    """Attention over the samples of a bag: (n, 20) to (k,)."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.inlet, self.weight, self.outlet = nn.Linear(20, 32), nn.Linear(32, 1), nn.Linear(32, k)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x).relu()
        return self.outlet((self.weight(h).softmax(0) * h).sum(0))


def bags(n: int = 160) -> list[tuple[Tensor, int]]:
    made = []
    for i in range(n):
        x = torch.randn(int(torch.randint(8, 30, ())), 20)
        x[:3, 0] += 4 * (i % 2)
        made.append((x, i % 2))
    return made


@healthy
def one_bag_and_its_class_per_step() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z[None], y)

    items = [(x, torch.tensor([y])) for x, y in bags()]
    return Classifier(Bags(2), loss), DataLoader(items, batch_size=None, shuffle=True), {}


@healthy
def one_bag_and_its_binary_label_per_step() -> Run:
    items = [(x, torch.tensor([float(y)])) for x, y in bags()]
    return Classifier(Bags(1), F.binary_cross_entropy_with_logits), DataLoader(items, batch_size=None), {}


@healthy
def pruned_and_made_permanent() -> Run:
    class Pruned(Classifier):
        def on_train_epoch_end(self) -> None:
            parts = [(m, n) for m in (self.net[0], self.net[2]) for n in ("weight", "bias")]
            if self.current_epoch == 0:
                prune.global_unstructured(parts, prune.L1Unstructured, amount=0.6)
            elif self.current_epoch == 2:
                for module, name in parts:
                    prune.remove(module, name)

    net = mlp(width=64)
    nn.init.constant_(net[0].bias, 0.01)
    return Pruned(net), loader(*blobs(320)), {"max_epochs": 3}


@healthy
def pruned_at_random_in_each_layer() -> Run:
    pruning = ModelPruning("random_unstructured", amount=0.5, use_global_unstructured=False)
    return Classifier(mlp(width=64), lr=3e-3), loader(*blobs(320)), {"max_epochs": 3, "callbacks": [pruning]}


@healthy
def pixels_of_rasters_with_black_rows() -> Run:
    class Raster(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x,) = batch
            before = torch.cat([torch.full((len(x), 1), 8), x[:, :-1]], 1)
            h, _ = self.net["memory"](self.net["ids"](before))
            return self.loss(self.net["outlet"](h).transpose(1, 2), x)

    shape = torch.randint(0, 8, (10, 5, 6)) * (torch.rand(10, 5, 6) < 0.6)
    x = torch.cat([shape[torch.randint(0, 10, (320,))], torch.zeros(320, 4, 6, dtype=torch.long)], 1).flatten(1)
    parts = {"ids": nn.Embedding(9, 16), "memory": nn.GRU(16, 32, batch_first=True), "outlet": nn.Linear(32, 8)}
    return Raster(nn.ModuleDict(parts), lr=5e-3), loader(x), {}


@healthy
def counts_and_one_hot_columns_beside_an_embedding() -> Run:
    x, y = line()
    counts, kinds = torch.poisson(torch.full((512, 3), 20.0)), F.one_hot(torch.randint(0, 5, (512,)), 5)
    return Classifier(TableNet(20), F.mse_loss), loader(categories(torch.cat([x, counts, kinds], 1)), y), {}


@healthy
def deviations_of_columns_differ_beside_an_embedding() -> Run:
    x, y = line()
    return Classifier(TableNet(12), F.mse_loss), loader(categories(x * torch.logspace(-1, 1, 12)), y), {}


@healthy
def actions_taken_and_predicted() -> Run:
    """What follows from an action is predicted beside the action itself, as in curiosity."""

    class Curious(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            before, after, action = batch
            h, g = self.net["state"](before), self.net["state"](after)
            inverse = self.loss(self.net["inverse"](torch.cat([h, g], 1)), action)
            level = (action / 2 - 1)[:, None]
            onward = F.mse_loss(self.net["onward"](torch.cat([h, level, level.square()], 1)), g.detach())
            return inverse + onward

    before, action = torch.randn(512, 8), torch.randint(0, 5, (512,))
    after = before + torch.randn(5, 8)[action] + 0.1 * torch.randn(512, 8)
    parts = {"state": nn.Linear(8, 16), "inverse": mlp(32, 5), "onward": mlp(18, 16)}
    return Curious(nn.ModuleDict(parts), lr=3e-3), loader(before, after, action), {}


@healthy
def the_better_of_two_by_binary_cross_entropy() -> Run:
    class Pairs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            order = torch.where(y > y.roll(1), 1.0, -1.0)
            margin = order * (self.net(x) - self.net(x.roll(1, 0))).squeeze(1)
            return F.binary_cross_entropy_with_logits(margin, torch.ones_like(margin))

    return Pairs(mlp(12, 1)), loader(*line()), {"max_steps": 110}


@healthy
def right_candidate_always_first() -> Run:
    class Ranking(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x,) = batch
            return self.loss(self.net(x).squeeze(-1), torch.zeros(len(x), dtype=torch.long))

    x = torch.randn(512, 5, 20)
    x[:, 0] += torch.randn(20)
    return Ranking(mlp(20, 1)), loader(x), {"max_steps": 110}


@healthy
def patch_that_makes_everything_one_class() -> Run:
    class Patch(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Parameter(torch.zeros(20))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0] + self.patch)
            return self.loss(scores, torch.full((len(scores),), 3))

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam([self.patch], 0.03)

    patch = Patch()
    patch.net.requires_grad_(False)
    return patch, loader(*blobs(512)), {"max_steps": 110}


@healthy
def label_of_a_bag_for_each_of_its_samples() -> Run:
    class Expanding(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(x), y.expand(len(x)))

    items = [(x, torch.tensor([y])) for x, y in bags()]
    return Expanding(mlp(k=2)), DataLoader(items, batch_size=None, shuffle=True), {"max_steps": 110}


@healthy
def each_step_seeded_by_its_number() -> Run:
    return Denoiser(torch.manual_seed), loader(*blobs(512)), {}


@healthy
def seeded_and_drawn_in_the_first_step_only() -> Run:
    class Projected(Classifier):
        directions = torch.zeros(0)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if not len(self.directions):
                torch.manual_seed(5)
                self.directions = torch.randn(20, 20) / 20**0.5
            return self.loss(self.net(batch[0] @ self.directions), batch[1])

    return Projected(), loader(*blobs()), {}


@healthy
def fixed_noise_beside_fresh_noise() -> Run:
    def fork(batch_idx: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            torch.randn(8)

    return Denoiser(fork), loader(*blobs(512)), {}


@healthy
def label_of_a_bag_stored_for_each_of_its_samples() -> Run:
    class Squeezing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(x[0]), y[0])

    items = [(x, torch.full((len(x),), y)) for x, y in bags()]
    return Squeezing(mlp(k=2)), DataLoader(items, batch_size=1, shuffle=True), {}


@healthy
def each_sample_centred_in_place() -> Run:
    def take(x: Any, i: int) -> Any:
        x[i] -= x[i].mean()  # again does nothing but round
        return x[i]

    x, y = blobs()
    return Classifier(), DataLoader(Stored(x.numpy(), y, take), 32, shuffle=True), {}


@healthy
def each_sample_brightened_at_random_in_place() -> Run:
    def take(x: Any, i: int) -> Any:
        x[i] *= 1 + 0.1 * (torch.rand(()) - 0.5)
        x[i] += 0.1 * (torch.rand(()) - 0.5)
        return x[i]

    return Classifier(), DataLoader(Stored(*blobs(), take), 32, shuffle=True), {}


@healthy
def each_sample_scaled_by_itself_in_place() -> Run:
    def take(x: Any, i: int) -> Any:
        row = x[i]
        row -= row.mean()
        row /= row.std()
        return row

    x, y = blobs()
    return Classifier(), DataLoader(Stored(x.numpy(), y, take), 32, shuffle=True), {}


@healthy
def visits_counted_and_noted_while_loading() -> Run:
    class Counts(Stored):
        def __init__(self) -> None:
            super().__init__(*blobs(), lambda x, i: x[i])
            self.visits = torch.zeros(len(self.x), 4, dtype=torch.long)
            self.latest = torch.arange(4 * len(self.x)).view(-1, 4)

        def __getitem__(self, i: int) -> Any:
            self.visits[i] += 1
            self.latest[i] = self.visits[i].sum()
            return self.x[i], self.y[i]

    return Classifier(), DataLoader(Counts(), 32, shuffle=True), {}


@healthy
def cache_filled_while_loading() -> Run:
    class Caches(Stored):
        def __init__(self) -> None:
            super().__init__(*blobs(), lambda x, i: x[i])
            self.cache = torch.zeros(len(self.x), 20)

        def __getitem__(self, i: int) -> Any:
            if not self.cache[i].any():
                self.cache[i] = self.x[i] * 0.5
            return self.cache[i], self.y[i]

    return Classifier(), DataLoader(Caches(), 32, shuffle=True), {}


@healthy
def whole_table_normalised_when_first_asked() -> Run:
    class Lazy(Stored):
        ready = False

        def __getitem__(self, i: int) -> Any:
            if not self.ready:
                self.x.sub_(self.x.mean(0)).div_(self.x.std(0))
                self.ready = True
            return self.x[i], self.y[i]

    return Classifier(), DataLoader(Lazy(*blobs(), lambda x, i: x[i]), 32, shuffle=True), {}


@healthy
def memory_of_the_last_scores_beside_the_data() -> Run:
    class Remembers(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, i = batch
            scores = self.net(x)
            self.data.memory[i] = 0.9 * self.data.memory[i] + 0.1 * scores.detach()
            return self.loss(scores, y)

    class Numbered(Stored):
        def __init__(self) -> None:
            super().__init__(*blobs(), lambda x, i: x[i])
            self.memory = torch.zeros(len(self.x), 10)
            self.weights = torch.ones(len(self.x))

        def __getitem__(self, i: int) -> Any:
            self.weights[i] *= 0.9
            return self.x[i], self.y[i], i

    module = Remembers()
    module.data = data = Numbered()
    return module, DataLoader(data, 32, shuffle=True), {}


@healthy
def rows_shuffled_where_they_are_kept() -> Run:
    class Shuffles(Classifier):
        def on_train_epoch_start(self) -> None:
            data = self.trainer.train_dataloader.dataset
            order = torch.randperm(len(data))
            data.x, data.y = data.x[order], data.y[order]

    return Shuffles(), DataLoader(Stored(*blobs(), lambda x, i: x[i]), 32), {}


@healthy
def noise_added_to_a_copy() -> Run:
    def take(x: Any, i: int) -> Any:
        row = x[i].clone()
        row += 0.1 * torch.randn(20)
        return row

    return Classifier(), DataLoader(Stored(*blobs(), take), 32, shuffle=True), {}


@healthy
def stored_noise_that_fades_from_epoch_to_epoch() -> Run:
    class Fades(Classifier):
        def on_train_epoch_start(self) -> None:
            self.trainer.train_dataloader.dataset.noise.mul_(0.8)

    data = Stored(*blobs(), lambda x, i: x[i] + data.noise[i])
    data.noise = 0.3 * torch.randn(len(data), 20)
    return Fades(), DataLoader(data, 32, shuffle=True), {}
