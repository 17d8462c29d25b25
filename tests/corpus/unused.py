"""Calls whose new result nobody takes, by people who think that they work in place."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault


class Pooled(Classifier):
    """Sums up sequences, filled up with zeros, by weights of their positions."""

    def __init__(self, fixed: bool) -> None:
        super().__init__(nn.Linear(32, 2), lr=3e-3)
        self.fixed = fixed
        self.embed, self.reader, self.score = nn.Embedding(12, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.cross_entropy(self.pooled(batch[0]), batch[1])

    def pooled(self, x: Tensor) -> Tensor:
        states, _ = self.reader(self.embed(x))
        scores = self.score(torch.tanh(states)).squeeze(-1)
        if self.fixed:
            scores = scores.masked_fill(x == 0, -1e9)
        else:
            scores.masked_fill(x == 0, -1e9)
        return self.net((scores.softmax(-1)[..., None] * states).sum(1))


@fault("WD136")
def mask_that_is_filled_into_nothing(fixed: bool) -> Run:
    x = torch.randint(1, 12, (512, 9))
    y = (x[:, 0] > 5).long()
    x[torch.arange(9) >= torch.randint(3, 10, (512, 1))] = 0
    return Pooled(fixed), loader(x, y), {}


@fault("WD136")
def ratios_clamped_for_nobody(fixed: bool) -> Run:
    class Clipped(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, action, gain, before = batch
            ratio = (self.net(state).log_softmax(1).gather(1, action) - before).exp()
            if fixed:
                ratio = ratio.clamp(0.8, 1.2)
            else:
                torch.clamp(ratio, 0.8, 1.2)
            return -(ratio * gain).mean()

    state = torch.randn(512, 12)
    action = torch.randint(0, 4, (512, 1))
    gain = state[:, :1] * (action - 1.5)
    return Clipped(mlp(12, 4), lr=3e-4), loader(state, action, gain, torch.full((512, 1), 0.25).log()), {}


@fault("WD136")
def features_normalised_for_nobody(fixed: bool) -> Run:
    class Normalised(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            x = F.normalize(x) if fixed else x
            if not fixed:
                F.normalize(x)
            return F.cross_entropy(self.net(x), y)

    return Normalised(), loader(*blobs()), {}
