"""Two processes."""

from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault, healthy


@fault("WD601", world=2)
def codebook_of_the_local_batch(fixed: bool) -> Run:
    class Codebook(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=12))
            self.codes, self.out = nn.Parameter(torch.randn(16, 12)), nn.Linear(12, 10)
            self.started = fixed

        def scores(self, x: Tensor) -> Tensor:
            h = self.net(x)
            if not self.started:
                self.codes.data, self.started = h.detach()[:16].clone(), True
            near = self.codes[torch.cdist(h, self.codes).argmin(1)]
            return self.out(h + near - near.detach())

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.scores(batch[0]), batch[1])

    return Codebook(), loader(*blobs(512)), {"max_steps": 12}


@fault("WD601", world=2)
def noise_added_to_weights_on_each_rank() -> Run:
    class Noisy(Classifier):
        def on_train_batch_end(self, *_: Any) -> None:
            with torch.no_grad():
                self.net[0].weight.add_(1e-3 * (1 + self.global_rank) * torch.ones(()))

        def configure_optimizers(self) -> Any:
            return Adam(self.parameters(), 1e-3)

    return Noisy(), loader(*blobs(512)), {"max_steps": 24}


@fault("WD601", world=2)
def layer_thawed_behind_the_strategy(fixed: bool) -> Run:
    class Thawed(Classifier):
        def on_train_start(self) -> None:
            self.net[0].requires_grad_(True)

    module = Thawed(optimizer=SGD, lr=0.05)
    module.net[0].requires_grad_(fixed)
    return module, loader(*blobs(512)), {"max_steps": 12}


@fault("WD601", world=2)
def gradients_taken_past_the_strategy(fixed: bool) -> Run:
    class Past(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer, loss = self.optimizers(), self.loss(self.net(batch[0]), batch[1])
            optimizer.zero_grad()
            if fixed:
                self.manual_backward(loss)
            else:
                for p, g in zip(self.parameters(), torch.autograd.grad(loss, list(self.parameters())), strict=True):
                    p.grad = g
            optimizer.step()

    return Past(), loader(*blobs(512)), {"max_steps": 12}


@fault("WD604", world=2)
def shards_of_unequal_size(fixed: bool) -> Run:
    class Cut(Classifier):
        def train_dataloader(self) -> Any:
            rank, (x, y) = self.global_rank, blobs(512)
            n = 192 if fixed or rank == 0 else 160
            return loader(x[rank::2][:n], y[rank::2][:n])

    return Cut(), None, {"max_steps": 24, "use_distributed_sampler": False}


@fault("WD602", world=2)
def both_ranks_draw_the_same() -> Run:
    dataset = TensorDataset(*blobs(512))
    data = DataLoader(dataset, 32, sampler=RandomSampler(dataset))
    return Classifier(), data, {"max_steps": 24, "use_distributed_sampler": False}


@healthy(world=2)
def images_on_two_ranks() -> Run:
    x = torch.randn(512, 1, 12, 12)
    y = (x[:, 0, :6].mean((1, 2)) > x[:, 0, 6:].mean((1, 2))).long()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 2)
    )
    return Classifier(net, lr=3e-3), loader(x, y), {"max_steps": 16}


@healthy(world=2)
def static_graph_keeps_ranks_in_step() -> Run:
    return Classifier(optimizer=SGD, lr=0.05), loader(*blobs(640)), {"strategy": DDPStrategy(static_graph=True)}


@healthy(world=2)
def averaged_weights_and_accumulation() -> Run:
    settings = {"max_steps": 24, "accumulate_grad_batches": 2, "callbacks": [StochasticWeightAveraging(1e-3)]}
    return Classifier(), loader(*blobs(512)), {**settings, "max_epochs": 6, "max_steps": -1}


@healthy(world=2)
def seeded_noise_of_a_denoiser() -> Run:
    class Denoiser(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            noise = torch.randn_like(batch[0])
            return F.mse_loss(self.net(batch[0] + noise), noise)

    return Denoiser(mlp(20, 20)), loader(*blobs(512)), {"max_steps": 24}


@healthy(world=2)
def each_rank_drops_out_differently() -> Run:
    net = nn.Sequential(nn.Dropout(0.2), mlp())
    return Classifier(net, optimizer=SGD, lr=0.05), loader(*blobs(512)), {"max_steps": 24}
