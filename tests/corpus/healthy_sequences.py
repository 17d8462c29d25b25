"""Healthy runs that look at both sides of a position, or whose targets are their inputs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, loader

from .case import Run, healthy
from .parts import Attending, Decoder, cut, text, tones, walks
from .sequences import Pooling, Tagger


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
def padding_that_weighs_and_has_no_values() -> Run:
    ids = cut(text(), 8, 20)
    return Classifier(Pooling(1), lr=3e-3), loader(ids, ids[:, 5] % 4), {}


@healthy
def labels_of_tokens_without_padding() -> Run:
    ids = text()
    return Classifier(Tagger(), lr=3e-3), loader(ids, ids % 5), {}


class TagsOfOne(Classifier):
    """A document or series at a time, (t,) ids or (t, d) values, with a label for each step of it."""

    def __init__(self, net: nn.Module, d: int, first: nn.Module | None = None, k: int = 3) -> None:
        super().__init__(net, lr=5e-3)
        self.first, self.head = nn.Identity() if first is None else first, nn.Linear(d, k)

    def run(self, x: Tensor) -> Tensor:
        return self.net(x[None])[0][0]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        return self.loss(self.head(self.run(self.first(x))), y)


class TimeFirst(TagsOfOne):
    def run(self, x: Tensor) -> Tensor:
        return self.net(x.view(len(x), 1, -1))[0].view(len(x), -1)


class Unbatched(TagsOfOne):
    def run(self, x: Tensor) -> Tensor:
        return self.net(x)[0]


class Convolved(TagsOfOne):
    def run(self, x: Tensor) -> Tensor:
        return self.net(x.T[None])[0].T


def documents(k: int = 3) -> list[tuple[Tensor, Tensor]]:
    """Token ids and their labels, each of another length."""
    return [(row[: 8 + i % 9], row[: 8 + i % 9] % k) for i, row in enumerate(text())]


def stream(n: int = 640) -> tuple[Tensor, Tensor]:
    """A long series, by rows (n, 3), and whether it rises: (n,)."""
    x = walks(1, n + 1)[0]
    return x[:-1], (x[1:, 0] > x[:-1, 0]).long()


@healthy
def tags_of_one_sentence_an_item() -> Run:
    return TimeFirst(nn.LSTM(16, 16), 16, nn.Embedding(48, 16)), DataLoader(documents(), None, True), {}  # type: ignore[arg-type]


@healthy
def tags_of_one_sentence_without_a_batch() -> Run:
    return Unbatched(nn.LSTM(16, 16), 16, nn.Embedding(48, 16)), DataLoader(documents(), None, True), {}  # type: ignore[arg-type]


@healthy
def tags_of_one_document_by_its_collate() -> Run:
    net = nn.GRU(16, 16, batch_first=True, bidirectional=True)
    data = DataLoader(documents(), 1, True, collate_fn=lambda rows: rows[0])  # type: ignore[arg-type]
    return TagsOfOne(net, 32, nn.Embedding(48, 16)), data, {}


@healthy
def tags_of_documents_laid_end_to_end() -> Run:
    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return torch.cat([x for x, _ in rows]), torch.cat([y for _, y in rows])

    net = nn.GRU(16, 16, batch_first=True, bidirectional=True)
    data = DataLoader(documents(), 4, True, collate_fn=collate)  # type: ignore[arg-type]
    return TagsOfOne(net, 32, nn.Embedding(48, 16)), data, {}


@healthy
def labels_of_one_series_by_convolutions() -> Run:
    x = walks()
    rows = list(zip(x, (x.roll(1, 1) > x)[..., 0].long(), strict=True))
    return Convolved(both_sides(3), 3, k=2), DataLoader(rows, None, True), {}  # type: ignore[arg-type]


@healthy
def rows_in_order_made_one_sequence() -> Run:
    return TagsOfOne(nn.LSTM(3, 16, batch_first=True), 16, k=2), loader(*stream(), shuffle=False), {}


@healthy
def rows_in_order_with_time_first() -> Run:
    return TimeFirst(nn.GRU(3, 16), 16, k=2), loader(*stream(), shuffle=False), {}


@healthy
def rows_in_order_convolved() -> Run:
    return Convolved(both_sides(3), 3, k=2), loader(*stream(), shuffle=False), {}


@healthy
def state_carried_along_a_stream() -> Run:
    class Carries(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.LSTM(3, 16), F.mse_loss, lr=3e-3)
            self.head, self.state = nn.Linear(16, 3), None

        def on_train_epoch_start(self) -> None:
            self.state = None

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h, state = self.net(batch[0].unsqueeze(1), self.state)
            self.state = tuple(part.detach() for part in state)
            return self.loss(self.head(h[:, 0]), batch[1])

    x = tones(1, 641, 3)[0][0]
    return Carries(), loader(x[:-1], x[1:], shuffle=False), {}


@healthy
def one_random_code_for_all_steps_of_a_sample() -> Run:
    class Noisy(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 24), lr=3e-3)
            self.level, self.outlet = nn.Embedding(50, 24), nn.Linear(24, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, noise = batch[0], torch.randn_like(batch[0])
            level = torch.randint(0, 50, (len(x), 1))
            h = self.net(x + noise * level[..., None] / 50) + self.level(level)
            return F.mse_loss(self.outlet(torch.relu(h)), noise)

    return Noisy(), loader(*tones()), {}


@healthy
def time_brought_first_behind_a_convolution() -> Run:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU())
            self.cell, self.head = nn.LSTM(16, 24), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(self.inlet(x.transpose(1, 2)).permute(2, 0, 1))[0][-1])

    return Classifier(First(), lr=3e-3), loader(*tones()), {}


@healthy
def padded_text_under_a_causal_mask_alone() -> Run:
    class Text(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            ids = batch[0]
            return F.cross_entropy(self.net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)

    return Text(Decoder(), lr=3e-3), loader(cut(text(), 8, 20)), {}
