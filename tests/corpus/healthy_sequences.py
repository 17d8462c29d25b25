"""Healthy runs that look at both sides of a position, or whose targets are their inputs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, loader

from .case import Run, healthy
from .parts import Attending, cut, text, tones, walks
from .sequences import Tagger


def both_sides(d: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(d, 16, 5, padding=2), nn.GELU(), nn.Conv1d(16, d, 5, padding="same"))


class Reconstructing(Classifier):
    """Its targets are its inputs, to which noise may be added."""

    noise = 0.0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x = batch[0]
        return self.loss(self.net(x + self.noise * torch.randn_like(x) if self.noise else x), x)


class Whole(nn.Module):
    """Reads a sequence to its end and writes it anew: (n, t, d) to (n, t, k)."""

    def __init__(self, d: int, k: int) -> None:
        super().__init__()
        self.reader, self.writer = nn.LSTM(d, 12, batch_first=True), nn.LSTM(12, 24, batch_first=True)
        self.head = nn.Linear(24, k)

    def forward(self, x: Tensor) -> Tensor:
        summary = self.reader(x)[1][0][0]
        return self.head(self.writer(summary[:, None].repeat(1, x.shape[1], 1))[0])


@healthy
def series_denoised_from_both_sides() -> Run:
    module = Reconstructing(both_sides(2), F.mse_loss, lr=3e-3)
    module.noise = 0.3
    return module, loader(walks(d=2).transpose(1, 2).contiguous()), {}


@healthy
def series_squeezed_in_time() -> Run:
    net = nn.Sequential(nn.Conv1d(3, 8, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(8, 3, 4, 2, 1))
    return Reconstructing(net, F.l1_loss, lr=3e-3), loader(walks().transpose(1, 2).contiguous()), {}


@healthy
def series_written_anew() -> Run:
    return Reconstructing(Whole(3, 3), F.mse_loss, lr=3e-3), loader(walks()), {}


@healthy
def text_written_anew() -> Run:
    class Text(Classifier):
        def __init__(self) -> None:
            super().__init__(Whole(16, 48), lr=3e-3)
            self.token = nn.Embedding(48, 16)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.net(self.token(batch[0])).flatten(0, 1), batch[0].flatten())

    return Text(), loader(text(t=10)), {}


@healthy
def tags_of_a_series_from_both_ways() -> Run:
    class Tags(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.GRU(3, 16, batch_first=True, bidirectional=True), lr=3e-3)
            self.head = nn.Linear(32, 3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            scores = self.head(self.net(x)[0])
            return self.loss(scores.transpose(1, 2), (x.roll(1, 1) + x.roll(-1, 1)).argmax(2))

    return Tags(), loader(walks()), {}


@healthy
def window_read_both_ways_for_what_follows() -> Run:
    class Horizon(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTM(3, 12, batch_first=True, bidirectional=True), nn.Linear(24, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0].mean(1))

    x = walks()
    return Classifier(Horizon(), F.mse_loss, lr=3e-3), loader(x[:, :16], x[:, 16:, 0]), {}


@healthy
def convolutions_cut_at_the_end() -> Run:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.far = nn.Conv1d(3, 16, 3, padding=2), nn.Conv1d(16, 3, 3, padding=4, dilation=2)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.near(x.transpose(1, 2))[..., :-2])
            return self.far(h)[..., :-4].transpose(1, 2)

    x = walks()
    return Classifier(Causal(), F.mse_loss, lr=3e-3), loader(x[:, :-1], x[:, 1:]), {}


@healthy
def tokens_hidden_at_random_behind_a_padding_mask() -> Run:
    """Most tokens are hidden on purpose, and the padding as well."""

    ids = cut(text(), 8, 20)
    return (
        Classifier(Attending(lambda ids: (torch.rand(ids.shape) < 0.7) | (ids == 0)), lr=3e-3),
        loader(ids, ids[:, 0] % 4),
        {},
    )


@healthy
def mixture_of_one_expert() -> Run:
    """Its gate is a softmax over one number, by configuration."""

    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.gate, self.head = nn.Linear(8, 24), nn.Linear(24, 1), nn.Linear(24, 4)
            self.experts = nn.ModuleList([nn.Linear(24, 24)])

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            made = torch.stack([expert(h) for expert in self.experts], -2)
            return self.head((self.gate(h).softmax(-1)[..., None] * made).sum(-2).mean(1))

    return Classifier(Mixture(), lr=3e-3), loader(*tones()), {}


@healthy
def label_of_padding_without_weight() -> Run:
    ids = cut(text(), 4, 16)
    weight = torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])
    return Classifier(Tagger(), nn.CrossEntropyLoss(weight), lr=3e-3), loader(ids, (ids % 4 + 1) * (ids > 0)), {}


@healthy
def padding_left_out_by_a_mask() -> Run:
    class Masked(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            ids, labels = batch
            losses = F.cross_entropy(self.net(ids), labels, reduction="none")
            return (losses * (ids > 0)).sum() / (ids > 0).sum()

    ids = cut(text(), 4, 16)
    return Masked(Tagger(), lr=3e-3), loader(ids, ids % 5), {}


@healthy
def labels_of_tokens_without_padding() -> Run:
    ids = text()
    return Classifier(Tagger(), lr=3e-3), loader(ids, ids % 5), {}
