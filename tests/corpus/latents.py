"""Language models with a code for each text, drawn around what an encoder has read: they know of later tokens by it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, loader

from .case import Run, fault, healthy
from .parts import Decoder, Language, text


class Coded(Decoder):
    """Writes a text with its code added at each position."""

    def forward(self, ids: Tensor, code: Tensor | None = None) -> Tensor:
        t = ids.shape[1]
        x = self.token(ids) + self.place(torch.arange(t)) + (0 if code is None else code[:, None])
        mask = nn.Transformer.generate_square_subsequent_mask(t) if self.causal else None
        return self.head(self.blocks(x, mask=mask))


class TextVAE(Classifier):
    """Reads the whole text, draws a code, and predicts each token from the ones before it and the code."""

    def __init__(self, causal: bool = True, shared: bool = False) -> None:
        super().__init__(Coded(causal=causal), lr=3e-3)
        self.token = self.net.token if shared else nn.Embedding(48, 24)
        self.reader, self.moments = nn.GRU(24, 24, batch_first=True), nn.Linear(24, 48)

    def draw(self, mean: Tensor, logvar: Tensor) -> Tensor:
        return mean + torch.randn_like(mean) * (0.5 * logvar).exp()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        ids = batch[0]
        mean, logvar = self.moments(self.reader(self.token(ids))[1][-1]).chunk(2, 1)
        scores = self.net(ids[:, :-1], self.draw(mean, logvar))
        divergence = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
        return F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()) + 0.1 * divergence / ids.shape[1]


@fault("WD132", "WD145")
def variational_writer_without_a_mask(fixed: bool) -> Run:
    return TextVAE(causal=fixed), loader(text(640)), {"max_steps": 60}


@fault("WD132", "WD145")
def noisy_tokens_without_a_mask(fixed: bool) -> Run:
    class Noisy(Decoder):
        def __init__(self) -> None:
            super().__init__(causal=fixed)
            self.spread = nn.Parameter(torch.full((24,), -4.0))

        def forward(self, ids: Tensor) -> Tensor:
            t = ids.shape[1]
            x = self.token(ids)
            x = x + torch.randn_like(x) * self.spread.exp() + self.place(torch.arange(t))
            mask = nn.Transformer.generate_square_subsequent_mask(t) if fixed else None
            return self.head(self.blocks(x, mask=mask))

    return Language(Noisy()), loader(text(640)), {"max_steps": 60}


@healthy
def variational_writer_with_shared_tokens() -> Run:
    return TextVAE(shared=True), loader(text()), {}


@healthy
def variational_writer_that_samples_by_distribution() -> Run:
    class Sampling(TextVAE):
        def draw(self, mean: Tensor, logvar: Tensor) -> Tensor:
            return torch.distributions.Normal(mean, (0.5 * logvar).exp()).rsample()

    return Sampling(), loader(text()), {}
