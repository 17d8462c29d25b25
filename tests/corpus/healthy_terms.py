"""Healthy runs whose losses are put together in ways of their own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


def chosen(z: Tensor, y: Tensor) -> Tensor:
    """Cross entropy, as the binary one of the label's probability."""
    return F.binary_cross_entropy(z.softmax(1).gather(1, y[:, None]), torch.ones(len(y), 1))


@healthy
def probability_of_the_label_against_one() -> Run:
    return Classifier(mlp(k=100), chosen), loader(*blobs(512, k=100)), {}


@healthy
def one_instance_of_many() -> Run:
    class OneOfMany(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(k=1)

        def forward(self, x: Tensor) -> Tensor:
            return 1 - (1 - self.net(x).squeeze(2).sigmoid()).prod(1)

    x = torch.randn(320, 12, 20)
    return Classifier(OneOfMany(), F.binary_cross_entropy, lr=3e-3), loader(x, (x[..., 0].amax(1) > 1.5).float()), {}


@healthy
def classes_summed_to_an_event() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(z.softmax(1)[:, :2].sum(1), (y < 2).float())

    return Classifier(mlp(k=100), loss, lr=3e-3), loader(*blobs(512, k=3)), {}
