"""Healthy runs with networks that are not a plain stack of layers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.optim import SGD, AdamW
from torch.utils.checkpoint import checkpoint

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import Decoder, Language, Recurrent, SequenceEncoder, cnn, cut, deep, images, text, tones


@healthy
def convolutions_with_momentum() -> Run:
    return Classifier(cnn(), optimizer=SGD, lr=0.05, momentum=0.9, weight_decay=1e-4), loader(*images()), {}


@healthy
def encoder_with_dropout() -> Run:
    return Classifier(SequenceEncoder(dropout=0.1), optimizer=AdamW, lr=3e-3), loader(*tones()), {}


@healthy
def tied_language_model() -> Run:
    return Language(Decoder(tied=True), optimizer=AdamW), loader(cut(text(), 14, 20)), {"gradient_clip_val": 1.0}


@healthy
def cell_whose_state_begins_at_zero() -> Run:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 24), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = x.new_zeros(len(x), 24)
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.head(state)

    return Classifier(Steps()), loader(*tones()), {}


@healthy
def filter_whose_state_begins_at_zero() -> Run:
    class Filter(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Identity(), lr=0.02)
            self.decay, self.gain = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(0.1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, error = torch.zeros(len(batch[0])).type_as(batch[0]), 0.0
            for value in batch[0].unbind(1):
                state = self.decay * state
                error = error + (value - state).square().mean()
                state = state + self.gain * (value - state)
            return error

    waves = torch.randn(640, 12).cumsum(1)
    return Filter(), loader(waves / 3), {}


@healthy
def packed_sequences() -> Run:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.cell = nn.Embedding(48, 16, padding_idx=0), nn.LSTM(16, 24, batch_first=True)
            self.head = nn.Linear(24, 6)

        def forward(self, ids: Tensor) -> Tensor:
            lengths = (ids > 0).sum(1).cpu()
            packed = pack_padded_sequence(self.token(ids), lengths, batch_first=True, enforce_sorted=False)
            h, _ = pad_packed_sequence(self.cell(packed)[0], batch_first=True)
            return self.head(h[torch.arange(len(ids)), lengths - 1])

    ids = cut(text(), 4, 20)
    return Classifier(Packed(), lr=5e-3), loader(ids, ids[:, 0] % 6), {}


@healthy
def padding_mask() -> Run:
    class Masked(SequenceEncoder):
        def forward(self, x: Tensor) -> Tensor:
            empty = (x == 0).all(2)
            h = self.blocks(self.inlet(x), src_key_padding_mask=empty).masked_fill(empty[..., None], 0)
            return self.outlet(h.sum(1) / (~empty).sum(1, keepdim=True))

    x, y = tones()
    x = x * (torch.arange(20) < torch.randint(5, 21, (len(x), 1)))[..., None]
    return Classifier(Masked(), lr=3e-3), loader(x, y), {}


@healthy
def mixture_of_experts_top_one() -> Run:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(20, 6), nn.ModuleList(mlp(20, 20) for _ in range(6))
            self.head = nn.Linear(20, 10)

        def forward(self, x: Tensor) -> Tensor:
            share, chosen = self.gate(x).softmax(1).max(1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                mine = chosen == i
                if mine.any():
                    out[mine] = expert(x[mine])
            return self.head(x + share[:, None] * out)

    return Classifier(Experts(), lr=3e-3), loader(*blobs(640)), {}


@healthy
def spectral_and_weight_norm() -> Run:
    net = deep(2, nn.LeakyReLU)
    parametrizations.spectral_norm(net[0])
    parametrizations.weight_norm(net[2])
    return Classifier(net, lr=3e-3), loader(*blobs()), {}


@healthy
def batches_of_one_with_group_norm() -> Run:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    return Classifier(net), loader(*images(64, 4), batch_size=1), {"max_steps": 60}


@healthy
def fake_quantisation() -> Run:
    class Quantised(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            step = self.weight.detach().abs().max() / 7
            return F.linear(
                x, torch.fake_quantize_per_tensor_affine(self.weight, step, torch.tensor(0), -7, 7), self.bias
            )

    return Classifier(nn.Sequential(Quantised(20, 48), nn.ReLU(), Quantised(48, 10)), lr=3e-3), loader(*blobs()), {}


@healthy
def straight_through_binary_weights() -> Run:
    class Binary(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            signs = self.weight.sign() * self.weight.abs().mean()
            return F.linear(x, self.weight + (signs - self.weight).detach(), self.bias)

    return (
        Classifier(nn.Sequential(Binary(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))),
        loader(*blobs()),
        {},
    )


@healthy
def checkpointed_blocks() -> Run:
    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body, self.head = nn.Linear(20, 32), deep(2, nn.GELU, 32, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(self.body, self.stem(x), use_reentrant=False))

    return Classifier(Saves(), lr=3e-3), loader(*blobs()), {}


@healthy
def graph_convolution() -> Run:
    class Graph(nn.Module):
        """Every node sees its neighbours: samples of one graph mix on purpose."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(20, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return edges @ self.second(torch.relu(edges @ self.first(x)))

    class Nodes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, edges, y = (part.squeeze(0) for part in batch)
            known = torch.arange(len(x)) % 2 == 0
            return self.loss(self.net(x, edges)[known], y[known])

    x, y = blobs(200, k=4)
    near = torch.softmax(3.0 * (y[:, None] == y).float() + torch.randn(200, 200), 1)
    rows = [(x, near, y)] * 20
    return Nodes(Graph(), lr=1e-2), torch.utils.data.DataLoader(rows, 1), {}


@healthy
def hashed_embeddings_with_rare_rows() -> Run:
    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = nn.Embedding(3000, 8), nn.Embedding(3000, 8)
            self.bias = nn.Parameter(torch.zeros(()))

        def forward(self, pairs: Tensor) -> Tensor:
            return (self.users(pairs[:, 0]) * self.items(pairs[:, 1])).sum(1) * 0.3 + self.bias

    pairs = torch.randint(0, 3000, (1280, 2))
    y = ((pairs[:, 0] + pairs[:, 1]) % 2).float()
    return Classifier(Recommender(), F.binary_cross_entropy_with_logits, lr=1e-2), loader(pairs, y, batch_size=64), {}


@healthy
def vision_transformer_with_a_class_token() -> Run:
    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 24, 4, 4)
            self.token, self.place = nn.Parameter(torch.zeros(1, 1, 24)), nn.Parameter(torch.zeros(1, 10, 24))
            block = nn.TransformerEncoderLayer(24, 3, 48, 0.0, batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
            self.head = nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.patches(x).flatten(2).transpose(1, 2)
            h = torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.place
            return self.head(self.blocks(h)[:, 0])

    return Classifier(Vit(), optimizer=AdamW, lr=2e-3), loader(*images()), {"max_steps": 50}


@healthy
def encoder_and_decoder_with_forcing() -> Run:
    class Translator(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Embedding(48, 16), lr=5e-3)
            self.reads, self.writes = nn.GRU(16, 24, batch_first=True), nn.GRU(16, 24, batch_first=True)
            self.head = nn.Linear(24, 48)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            source, target = batch
            _, state = self.reads(self.net(source))
            h, _ = self.writes(self.net(target[:, :-1]), state)
            return F.cross_entropy(self.head(h).flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)

    ids = text(n=320, t=12)
    return Translator(), loader(ids, cut(ids.flip(1), 8, 12)), {}


@healthy
def autoencoder_with_a_narrow_middle() -> Run:
    net = nn.Sequential(mlp(20, 3), nn.ReLU(), mlp(3, 20))
    loss = lambda z, x: F.mse_loss(z, x)  # noqa: E731
    x, _ = blobs()
    return Classifier(net, loss, lr=3e-3), loader(x, x), {}


@healthy
def masked_autoregression() -> Run:
    class Masked(nn.Linear):
        """Each output sees earlier inputs only."""

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight.tril(-1), self.bias)

    x = (torch.rand(512, 1) < torch.rand(16)).float()
    x[:, 1::2] = x[:, ::2]
    return Classifier(Masked(16, 16), F.binary_cross_entropy_with_logits, lr=3e-2), loader(x, x), {}


@healthy
def stateful_recurrence_over_batches() -> Run:
    class Carries(Classifier):
        state: Any = None

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            h, state = self.net.cell(x, self.state)
            self.state = tuple(s.detach() for s in state)
            return self.loss(self.net.head(h[:, -1]), y)

    return Carries(Recurrent(), lr=3e-3), loader(*tones(), drop_last=True), {}
