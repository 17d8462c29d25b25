"""Softmaxes over the samples, and what is taken of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched

Loss = Callable[[Tensor, Tensor], Tensor]
ROWS = torch.arange(32)

LOSSES: dict[str, tuple[Loss, bool]] = {
    "gathered": (lambda s, y: -s.softmax(0).gather(1, y[:, None]).log().mean(), True),
    "gathered, its own axis": (lambda s, y: -s.softmax(1).gather(1, y[:, None]).log().mean(), False),
    "indexed": (lambda s, y: -s.log_softmax(0)[ROWS, y].mean(), True),
    "summed": (lambda s, y: -(s.softmax(0).log() * F.one_hot(y, 10)).sum(-1).mean(), True),
    "summed, over the samples": (lambda s, y: -(s.log_softmax(0) * F.one_hot(y, 10)).sum(0).mean(), False),
    "summed, over everything": (lambda s, y: -(s.log_softmax(0) * F.one_hot(y, 10)).sum() / 32, False),
    "without a logarithm": (lambda s, y: -s.softmax(0).gather(1, y[:, None]).mean(), False),
    "of a square": (lambda s, y: -(s @ s.T).log_softmax(0).gather(1, ROWS[:, None]).mean(), False),
}


@pytest.mark.parametrize("case", LOSSES)
def test_only_another_axis_than_the_samples_is_told(case: str) -> None:
    loss, told = LOSSES[case]

    class ByHand(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return loss(self.net(batch[0]), batch[1])

    dog = watched(ByHand(), loader(*blobs()), max_steps=6)
    assert_awake(dog)
    assert ("WD103" in codes(dog)) is told
    if told:
        (alert,) = (a for a in dog.alerts if a.code == "WD103")
        assert "axis of the classes" in alert.hint
