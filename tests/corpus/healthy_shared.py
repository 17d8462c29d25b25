"""Softmaxes over the samples that are meant, and sums over the samples of what is normalised over classes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


@healthy
def documents_of_a_query_ranked_together() -> Run:
    class Ranking(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, grade = batch
            logs = F.log_softmax(self.net(x), dim=0)
            return -(F.softmax(grade, dim=0) * logs).sum(1).sum()

    x = torch.randn(512, 12)
    return Ranking(mlp(12, 1)), loader(x, x[:, :1] + 0.1 * torch.randn(512, 1)), {}


@healthy
def samples_that_compete_for_prototypes() -> Run:
    class Prototypes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            wanted = F.one_hot(y, 10).float()
            to_samples = -(wanted * F.log_softmax(scores, dim=0)).sum(0) / wanted.sum(0).clamp(min=1)
            return F.cross_entropy(scores, y) + 0.1 * to_samples.mean()

    return Prototypes(), loader(*blobs()), {}


class Episodes(Classifier):
    """Scores are the nearness of samples to the means of the classes in the batch."""

    def __init__(self, near: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(mlp(20, 16))
        self.near = near

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        codes, classes = self.net(x), y.unique()
        means = torch.stack([codes[y == k].mean(0) for k in classes])
        return F.cross_entropy(self.near(codes, means), torch.searchsorted(classes, y))


@healthy
def distances_to_the_means_of_classes() -> Run:
    return Episodes(lambda codes, means: -(torch.cdist(codes, means) ** 2)), loader(*blobs()), {}


@healthy
def squares_of_differences_to_the_means_of_classes() -> Run:
    return Episodes(lambda codes, means: -((codes[:, None] - means[None]) ** 2).sum(-1)), loader(*blobs()), {}


@healthy
def cosines_with_the_means_of_classes() -> Run:
    return Episodes(lambda codes, means: 5 * F.cosine_similarity(codes[:, None], means, dim=-1)), loader(*blobs()), {}


@healthy
def classes_averaged_one_by_one() -> Run:
    class Balanced(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            wanted = F.one_hot(y, 10).float()
            each = -(wanted * F.log_softmax(self.net(x), dim=1)).sum(0) / wanted.sum(0).clamp(min=1)
            return each.mean()

    return Balanced(), loader(*blobs()), {}


@healthy
def batch_that_is_one_bag_of_instances() -> Run:
    class Bag(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 32))
            self.gate, self.head = nn.Linear(32, 4), nn.Linear(4 * 32, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            states = self.net(x)
            weights = self.gate(states).softmax(0)
            bag = (weights[:, :, None] * states[:, None]).sum(0).flatten()
            return F.cross_entropy(self.head(bag)[None], y[:1] % 2) - 0.01 * weights.log().mean()

    return Bag(), loader(*blobs()), {}
