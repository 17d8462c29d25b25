"""Two processes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tests.runs import Classifier, blobs, loader, mlp

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


@fault("WD602", world=2)
def both_ranks_draw_the_same() -> Run:
    dataset = TensorDataset(*blobs(512))
    data = DataLoader(dataset, 32, sampler=RandomSampler(dataset))
    return Classifier(), data, {"max_steps": 24, "use_distributed_sampler": False}


@healthy(world=2)
def each_rank_drops_out_differently() -> Run:
    net = nn.Sequential(nn.Dropout(0.2), mlp())
    return Classifier(net, optimizer=SGD, lr=0.05), loader(*blobs(512)), {"max_steps": 24}
