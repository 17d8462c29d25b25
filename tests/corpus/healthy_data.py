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
