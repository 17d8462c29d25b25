"""Sequences: masks, shifts, padding, and axes that are taken for one another."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, loader

from .case import Run, fault
from .parts import Attending, Decoder, Language, SequenceEncoder, cut, text, tones, walks


@fault("WD111")
def padding_is_learned(fixed: bool) -> Run:
    return Language(padding=0 if fixed else -100), loader(cut(text(), 3, 7)), {}


@fault("WD111")
def padding_is_masked_in_the_input_only(fixed: bool) -> Run:
    class Unreduced(Language):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            source, target = batch[0][:, :-1], batch[0][:, 1:]
            losses = F.cross_entropy(self.net(source).transpose(1, 2), target, reduction="none")
            mask = target != 0
            return (losses * mask).sum() / mask.sum() if fixed else losses.sum(1).mean() / losses.shape[1]

    return Unreduced(), loader(cut(text(), 3, 7)), {}


@fault("WD112")
def targets_not_shifted(fixed: bool) -> Run:
    return Language(shift=1 if fixed else 0), loader(text()), {}


class MaskedLanguage(Language):
    """Guesses some tokens of a text from both sides."""

    def __init__(self, hidden: float = 0.9) -> None:
        super().__init__()
        self.net, self.hidden = Decoder(causal=False), hidden

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        source = batch[0].clone()
        chosen = (torch.rand(source.shape) < 0.2) & (source > 0)
        target = source.masked_fill(~chosen, -100)
        source[chosen & (torch.rand(source.shape) < self.hidden)] = 1
        return F.cross_entropy(self.net(source).flatten(0, 1), target.flatten())


@fault("WD112")
def masked_tokens_are_not_masked(fixed: bool) -> Run:
    return MaskedLanguage(0.9 if fixed else 0.0), loader(cut(text(), 3, 7)), {}


@fault("WD112")
def targets_shifted_twice() -> Run:
    class Twice(Language):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            source, target = batch[0][:, :-1], batch[0][:, 1:]
            scores = self.net(source)[:, :-1]
            return F.cross_entropy(scores.reshape(-1, 48), target[:, 1:].reshape(-1))

    return Twice(), loader(text()), {"max_steps": 60}


@fault("WD131")
def attention_over_the_batch_at_once(fixed: bool) -> Run:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.TransformerEncoderLayer(8, 2, 32, 0.0, batch_first=fixed)
            self.head = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).mean(1))

    return Classifier(Attends(), lr=3e-3), loader(*tones()), {}


@fault("WD131")
def attention_over_the_batch(fixed: bool) -> Run:
    return Classifier(SequenceEncoder(batch_first=fixed), lr=3e-3), loader(*tones()), {}


@fault("WD131")
def reshape_that_mixes_samples(fixed: bool) -> Run:
    class Mixes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(8, 16), nn.Linear(16 * 20, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            return self.head((h if fixed else h.transpose(0, 1)).reshape(len(x), -1))

    return Classifier(Mixes()), loader(*tones()), {}


@fault("WD132", "WD145")
def no_causal_mask(fixed: bool) -> Run:
    return Language(Decoder(causal=fixed), lr=1e-2), loader(text(640)), {"max_steps": 60}


@fault("WD132", "WD145")
def convolution_sees_both_sides() -> Run:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(48, 24), nn.Linear(24, 48)
            self.mix = nn.Conv1d(24, 24, 3, padding=1)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(torch.relu(self.mix(self.token(ids).transpose(1, 2))).transpose(1, 2))

    return Language(Both(), lr=1e-2), loader(text(640)), {"max_steps": 60}


@fault("WD132", "WD145")
def mask_upside_down(fixed: bool) -> Run:
    class Masked(Decoder):
        def forward(self, ids: Tensor) -> Tensor:
            t = ids.shape[1]
            wall = torch.full((t, t), -torch.inf)
            mask = wall.triu(1) if fixed else wall.tril(-1)
            return self.head(self.blocks(self.token(ids) + self.place(torch.arange(t)), mask=mask))

    return Language(Masked()), loader(text()), {}


@fault("WD132", "WD145")
def second_direction_of_a_recurrence(fixed: bool) -> Run:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(48, 16)
            self.cell = nn.LSTM(16, 16, batch_first=True, bidirectional=not fixed)
            self.head = nn.Linear(16 if fixed else 32, 48)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.cell(self.token(ids))[0])

    return Language(Both()), loader(text()), {}


@fault("WD132")
def series_padded_on_both_sides(fixed: bool) -> Run:
    class Next(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.head = nn.Conv1d(3, 16, 5), nn.Conv1d(16, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.pad(x.transpose(1, 2), (4, 0) if fixed else (2, 2))
            return self.head(torch.relu(self.mix(x))).transpose(1, 2)

    x = walks()
    return Classifier(Next(), F.mse_loss, lr=3e-3), loader(x[:, :-1], x[:, 1:]), {}


@fault("WD132")
def series_read_both_ways(fixed: bool) -> Run:
    class Next(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(3, 16, batch_first=True, bidirectional=not fixed)
            self.head = nn.Linear(16 if fixed else 32, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0])[..., 0]

    x = walks()
    return Classifier(Next(), F.smooth_l1_loss, lr=3e-3), loader(x[:, :-1], x[:, 1:, 1], batch_size=20), {}


@fault("WD132", "WD145")
def no_mask_where_time_comes_first(fixed: bool) -> Run:
    class TimeFirst(Language):
        def __init__(self) -> None:
            super().__init__(nn.TransformerEncoderLayer(24, 3, 48, 0.0))
            self.token, self.head = nn.Embedding(48, 24), nn.Linear(24, 48)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            ids = batch[0].T
            mask = nn.Transformer.generate_square_subsequent_mask(len(ids) - 1) if fixed else None
            scores = self.head(self.net(self.token(ids[:-1]), mask))
            return F.cross_entropy(scores.reshape(-1, 48), ids[1:].reshape(-1))

    return TimeFirst(), loader(text(t=14)), {}


@fault("WD103", also=("WD131", "WD101"))
def classes_on_the_axis_of_time(fixed: bool) -> Run:
    class Tags(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            return F.cross_entropy(scores.transpose(1, 2) if fixed else scores, batch[0] % 20)

    net = nn.Sequential(nn.Embedding(48, 24), nn.Linear(24, 20))
    return Tags(net, lr=5e-3), loader(text()), {}


@fault("WD131")
def recurrence_over_the_batch(fixed: bool) -> Run:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(8, 24, batch_first=fixed), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0][:, -1])

    return Classifier(Last(), lr=3e-3), loader(*tones()), {}


@fault("WD131")
def normalised_over_the_wrong_axis(fixed: bool) -> Run:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.weight, self.head = nn.Linear(8, 24), nn.Linear(8, 1), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            share = self.weight(x).softmax(1 if fixed else 0)
            return self.head((share * torch.tanh(self.value(x))).sum(1))

    return Classifier(Weighted(), lr=3e-3), loader(*tones()), {}


@fault("WD111")
def tags_mostly_outside(fixed: bool) -> Run:
    class Tags(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            ids, tags = batch["ids"], batch["tags"]
            scores = self.net(ids)
            return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=0 if fixed else -100)

    ids = cut(text(), 2, 6)
    rows = [{"ids": row, "tags": torch.where(row > 0, row % 11 + 1, 0)} for row in ids]
    return Tags(nn.Sequential(nn.Embedding(48, 24), nn.Linear(24, 12)), lr=5e-3), DataLoader(rows, 32), {}


@fault("WD133")
def padding_mask_turned_round(fixed: bool) -> Run:
    ids = cut(text(), 8, 20)
    return Classifier(Attending(lambda ids: ids == 0 if fixed else ids != 0), lr=3e-3), loader(ids, ids[:, 5] % 4), {}


class Pooling(nn.Module):
    """Weighs tokens by scores, those of padding set to -inf (2), their values to 0 (1), or not at all (0)."""

    def __init__(self, masks: int) -> None:
        super().__init__()
        self.tokens, self.score, self.head = nn.Embedding(48, 24), nn.Linear(24, 1), nn.Linear(24, 4)
        self.masks = masks

    def forward(self, ids: Tensor) -> Tensor:
        real, h = ids != 0, self.tokens(ids)
        scores = self.score(h.tanh()).squeeze(-1)
        scores = scores.masked_fill(~real, -torch.inf) if self.masks == 2 else scores
        h = h * real[..., None] if self.masks == 1 else h
        return self.head(torch.einsum("nt,ntd->nd", scores.softmax(1), h))


@fault("WD134")
def attention_without_a_padding_mask(fixed: bool) -> Run:
    class Sees(Attending):
        def forward(self, ids: Tensor) -> Tensor:
            real = ids != 0
            h = self.blocks(self.tokens(ids), src_key_padding_mask=~real if fixed else None)
            return self.head((h * real[..., None]).sum(1) / real.sum(1, keepdim=True))

    ids = cut(text(), 8, 20)
    return Classifier(Sees(torch.zeros_like), lr=3e-3), loader(ids, ids[:, 5] % 4), {}


@fault("WD134")
def pooling_by_hand_without_a_padding_mask(fixed: bool) -> Run:
    ids = cut(text(), 8, 20)
    return Classifier(Pooling(2 if fixed else 0), lr=3e-3), loader(ids, ids[:, 5] % 4), {}


@fault("WD133")
def pooling_over_an_axis_of_one(fixed: bool) -> Run:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.score, self.head = nn.Linear(8, 24), nn.Linear(24, 1), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.inlet(x))
            return self.head((self.score(h).softmax(1 if fixed else -1) * h).sum(1))

    return Classifier(Pooled(), lr=3e-3), loader(*tones()), {}


class Tagger(nn.Module):
    """A label for each token: (n, t) to scores (n, 5, t)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(48, 24), nn.Linear(48, 5)
        self.cell = nn.LSTM(24, 24, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.cell(self.tokens(ids))[0]).transpose(1, 2)


@fault("WD111")
def padding_labelled_as_a_class(fixed: bool) -> Run:
    ids = cut(text(), 4, 16)
    labels = ids % 5
    if fixed:
        labels[ids == 0] = -100
    return Classifier(Tagger(), lr=3e-3), loader(ids, labels), {}


class Placed(nn.Module):
    """Adds a code of its place to each step of (n, t, 8), or one of the sample's place in the batch."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.inlet, self.place, self.head = nn.Linear(8, 24), nn.Embedding(64, 24), nn.Linear(24, 4)
        self.block, self.fixed = nn.TransformerEncoderLayer(24, 3, 48, 0.0, batch_first=True), fixed

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1])[None] if self.fixed else torch.arange(x.shape[0])[:, None]
        return self.head(self.block(self.inlet(x) + self.place(place)).mean(1))


@fault("WD131")
def places_counted_along_the_batch(fixed: bool) -> Run:
    return Classifier(Placed(fixed), lr=3e-3), loader(*tones()), {}


@fault("WD131")
def last_states_of_two_directions_viewed_as_rows(fixed: bool) -> Run:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(8, 12, batch_first=True, bidirectional=True), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.cell(x)[1]
            return self.head(h.transpose(0, 1).reshape(len(x), -1) if fixed else h.view(len(x), -1))

    return Classifier(Last(), lr=3e-3), loader(*tones()), {}


class MaskedByHand(nn.Module):
    """Attention by hand over token ids (n, t) to 4 scores; a mask is 1 where keys are looked at."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.token, self.inlet, self.head = nn.Embedding(48, 24), nn.Linear(24, 72), nn.Linear(24, 4)
        self.fixed = fixed

    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != 0 if self.fixed else ids == 0).float()
        query, key, value = self.inlet(self.token(ids)).chunk(3, -1)
        scores = query @ key.transpose(-2, -1) / 24**0.5 + (1 - mask[:, None]) * -1e4
        return self.head((scores.softmax(-1) @ value)[:, 0])


@fault("WD133")
def added_mask_turned_round(fixed: bool) -> Run:
    ids = cut(text(), 8, 20)
    return Classifier(MaskedByHand(fixed), lr=3e-3), loader(ids, ids[:, 5] % 4), {}


class Frames(nn.Module):
    """A convolution for each frame, then a recurrence over time: (n, t, 8) to 4 scores."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.inlet = nn.Sequential(nn.Conv1d(1, 6, 3, padding=1), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten())
        self.cell, self.head = nn.LSTM(48, 24, batch_first=batch_first), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        frames = self.inlet(x.reshape(-1, 1, 8)).view(len(x), x.shape[1], -1)
        return self.head(self.cell(frames)[0][:, -1])


@fault("WD131")
def recurrence_over_the_batch_behind_convolutions(fixed: bool) -> Run:
    return Classifier(Frames(batch_first=fixed), lr=3e-3), loader(*tones()), {}


@fault("WD133")
def places_in_place_of_tokens(fixed: bool) -> Run:
    class Placed(Decoder):
        def forward(self, ids: Tensor) -> Tensor:
            places = torch.arange(ids.shape[1]).expand_as(ids)
            x = self.token(ids if fixed else places) + self.place(places)
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.blocks(x, mask=mask, is_causal=True))

    return Language(Placed()), loader(text()), {}


@fault("WD111")
def padding_in_picked_log_probabilities(fixed: bool) -> Run:
    class Picked(Language):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            target = batch[0][:, 1:]
            scores = self.net(batch[0][:, :-1]).log_softmax(-1)
            losses = -scores.gather(2, target[..., None]).squeeze(2)
            return losses[target != 0].mean() if fixed else losses.mean()

    return Picked(), loader(cut(text(), 3, 7)), {}
