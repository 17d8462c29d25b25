"""Hinges by hand, and the labels that they get."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.runs import Classifier, assert_awake, blobs, codes, loader, mlp, watched

Loss = Callable[[Tensor, Tensor], Tensor]


def capped(z: Tensor, y: Tensor) -> Tensor:
    return torch.max(torch.zeros_like(z), 1 - y * z).mean()


LOSSES: dict[str, tuple[Loss, bool]] = {
    "clamped": (lambda z, y: torch.clamp(1 - y * z, min=0).mean(), True),
    "relu of a column": (lambda z, y: (1 - (z * y).unsqueeze(1)).relu().square().mean(), True),
    "capped": (capped, True),
    "the other way round": (lambda z, y: torch.relu(-(y * z) + 1).sum() / len(y), True),
    "labels as they should be": (lambda z, y: torch.clamp(1 - (2 * y - 1) * z, min=0).mean(), False),
    "both sides": (lambda z, y: ((1 - y * z).relu() + (1 + (1 - y) * z).relu()).mean(), False),
    "both sides, one weighed later": (lambda z, y: ((1 - y * z).relu() + (1 - y) * (1 + z).relu()).mean(), False),
    "a mask of labels": (lambda z, y: (1 - y * ((2 * (z.detach() > 0).float() - 1) * z)).relu().mean(), False),
    "a mask as such": (lambda z, y: (1 - (y > 0) * z).relu().mean(), False),
    "beside another term": (lambda z, y: (1 - y * z).relu().mean() + z.square().mean(), False),
    "no hinge": (lambda z, y: (1 - y * z).square().mean(), False),
    "capped elsewhere": (lambda z, y: torch.clamp(1 - y * z, min=0.5).mean(), False),
    "of a difference": (lambda z, y: (1 - y * (z - z.roll(1))).relu().mean(), False),
}


@pytest.mark.parametrize("case", LOSSES)
def test_only_labels_of_the_one_hinge_are_told(case: str) -> None:
    loss, told = LOSSES[case]

    class ByHand(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return loss(self.net(batch[0]).squeeze(1), (batch[1] > 4).float())

    dog = watched(ByHand(mlp(k=1)), loader(*blobs()), max_steps=3)
    assert_awake(dog)
    assert ("WD105" in codes(dog)) is told
