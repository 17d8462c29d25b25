"""Healthy runs whose losses are rounded: half formats, sums over many targets, an epsilon in each logarithm."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch.optim import Adam

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


class Taught(Classifier):
    """Follows a trained copy of itself."""

    def __init__(self, loss: Any) -> None:
        x, y = blobs(1024, k=5)
        net = mlp(k=5)
        optimizer = Adam(net.parameters(), 0.01)
        for _ in range(200):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        teacher = deepcopy(net).requires_grad_(False)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + 0.01 * torch.randn_like(p))
        super().__init__(net, loss)
        self.teacher = teacher
        self.x = x

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.net(batch[0]), self.teacher(batch[0]))

    def configure_optimizers(self) -> Any:
        return Adam(self.net.parameters(), 1e-3)


@healthy
def answers_of_a_sure_teacher_summed_in_half() -> Run:
    def loss(z: Any, answers: Any) -> Any:
        return F.cross_entropy(z.half(), answers.softmax(1).half(), reduction="sum").float() / len(z)

    module = Taught(loss)
    return module, loader(module.x, batch_size=512), {}


@healthy
def divergence_of_single_samples_in_bf16() -> Run:
    def loss(z: Any, answers: Any) -> Any:
        return F.kl_div(z.log_softmax(1), answers.softmax(1), reduction="sum")

    module = Taught(loss)
    return module, loader(module.x, batch_size=1), {"precision": "bf16-mixed"}


@healthy
def epsilon_in_many_probabilities() -> Run:
    def loss(z: Any, y: Any) -> Any:
        return F.nll_loss((z.softmax(1) + 1e-4).log(), y)

    return Classifier(mlp(k=800), loss), loader(*blobs(512, k=800)), {}
