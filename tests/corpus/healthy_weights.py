"""Healthy runs whose losses have class weights."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import images
from .targets import rare


@healthy
def roots_of_the_inverse_frequency() -> Run:
    x, y = rare()
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(y.bincount().float().rsqrt())), loader(x, y), {}


@healthy
def effective_numbers_of_samples() -> Run:
    x, y = rare()
    weight = 0.01 / (1 - 0.99 ** y.bincount().float())
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(weight / weight.sum() * 5)), loader(x, y), {}


@healthy
def balanced_by_the_sampler_and_weighted_by_the_frequency() -> Run:
    x, y = rare()
    counts = y.bincount().float()
    sampler = WeightedRandomSampler((1 / counts)[y].tolist(), len(y))
    data = DataLoader(TensorDataset(x, y), 32, sampler=sampler)
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(counts / counts.mean())), data, {}


@healthy
def one_class_that_costs_more() -> Run:
    x, y = blobs(k=2)
    return Classifier(mlp(k=2), nn.CrossEntropyLoss(torch.tensor([1.0, 4.0]))), loader(x, y), {}


@healthy
def background_weighted_down_per_pixel() -> Run:
    x, _ = images(160)
    y = (x.mean(1) > 1.0).long()
    net = nn.Conv2d(3, 2, 3, padding=1)
    return Classifier(net, nn.CrossEntropyLoss(torch.tensor([0.1, 1.0]))), loader(x, y), {}


@healthy
def class_without_weight() -> Run:
    x, y = rare()
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]))), loader(x, y), {}


@healthy
def rare_answers_of_many_questions() -> Run:
    x = torch.randn(1000, 20)
    y = (x > torch.linspace(0, 2, 20)).float()
    weight = (1 / y.mean(0) - 1).clamp(max=20)
    return (
        Classifier(mlp(k=20), lambda z, t: F.binary_cross_entropy_with_logits(z, t, pos_weight=weight)),
        loader(x, y),
        {},
    )


@healthy
def square_roots_drawn_and_put_right_by_weights() -> Run:
    x, y = rare()
    shares = y.bincount().float() / len(y)
    drawn = shares.sqrt() / shares.sqrt().sum()
    data = DataLoader(TensorDataset(x, y), 32, sampler=WeightedRandomSampler((drawn / shares)[y].tolist(), len(y)))
    return Classifier(mlp(k=5), nn.CrossEntropyLoss(shares / drawn)), data, {}


@healthy
def layer_kept_sparse_by_a_mask_of_the_module() -> Run:
    class Sparse(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("links", (torch.rand(32, 20) < 0.7).float())

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            with torch.no_grad():
                self.net[0].weight *= self.links

    return Sparse(), loader(*blobs()), {}
