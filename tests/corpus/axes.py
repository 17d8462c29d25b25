"""Axes that meet by broadcasting, samples that are mixed, classes that lie on another axis."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .parts import cnn, images, line, text, tones, walks


@fault("WD104")
def column_of_actions_times_row_of_gains(fixed: bool) -> Run:
    class Reinforce(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, action, gain = batch
            taken = self.net(state).log_softmax(1).gather(1, action[:, None])
            return -((taken.squeeze(1) if fixed else taken) * (gain - gain.mean())).mean()

    state, gain = line()
    return Reinforce(mlp(12, 4), lr=3e-3), loader(state, torch.randint(0, 4, (len(state),)), gain), {}


@fault("WD104")
def weights_of_samples_as_a_column(fixed: bool) -> Run:
    class Weighted(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, weight = batch
            losses = F.cross_entropy(self.net(x), y, reduction="none")
            return (losses * (weight[:, 0] if fixed else weight)).sum() / weight.sum()

    x, y = blobs()
    return Weighted(lr=3e-3), loader(x, y, 0.5 + torch.rand(len(x), 1)), {}


@fault("WD104")
def errors_divided_by_lengths(fixed: bool) -> Run:
    class Divided(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y, length = batch
            errors = (self.net(x) - y[:, None]).square()
            step_by_hand(self, (errors / (length[:, None] if fixed else length)).sum(-1).mean())

    x, y = line(256)
    lengths = torch.randint(1, 7, (256,)).float()
    return Divided(mlp(12, 1), lr=3e-3), loader(x, y, lengths, batch_size=16), {}


@fault("WD131")
def reshape_for_time_first(fixed: bool) -> Run:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTM(8, 24), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            n, t, d = x.shape
            return self.head(self.cell(x.transpose(0, 1) if fixed else x.reshape(t, n, d))[0][-1])

    return Classifier(Last(), lr=3e-3), loader(*tones(t=9)), {}


@fault("WD131")
def reshape_of_as_many_features_as_samples(fixed: bool) -> Run:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = x.view(-1, 4, 8)
            return self.head(self.cell(x if fixed else x.reshape(4, -1, 8).transpose(0, 1))[0][:, -1])

    return Classifier(Rows(), lr=3e-3), loader(*blobs(d=32), drop_last=True), {}


@fault("WD131")
def view_between_the_layers(fixed: bool) -> Run:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(8, 24), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            return self.head((h.transpose(0, 1) if fixed else h.view(h.shape[1], len(h), -1)).mean(0))[:, 0]

    x, y = tones(t=7)
    return Classifier(Pooled(), F.mse_loss, lr=3e-3), loader(x, y.float(), batch_size=40), {}


@fault("WD131", also=("WD132",))
def scores_and_labels_flattened_in_two_orders(fixed: bool) -> Run:
    class Tags(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.GRU(16, 16), lr=5e-3)
            self.token, self.head = nn.Embedding(48, 16), nn.Linear(16, 7)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.head(self.net(self.token(batch[0].T))[0])
            tags = batch[0] % 7
            return self.loss(scores.reshape(-1, 7), (tags.T if fixed else tags).reshape(-1))

    return Tags(), loader(text(t=10)), {}


@fault("WD103")
def reshape_of_channels_into_rows(fixed: bool) -> Run:
    class Tags(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            return self.loss((scores.movedim(1, -1) if fixed else scores).reshape(-1, 6), y.flatten())

    net = nn.Sequential(nn.Conv1d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv1d(24, 6, 1))
    x = walks(t=14)
    return Tags(net, lr=5e-3), loader(x.transpose(1, 2).contiguous(), x.argmax(2)), {}


@fault("WD103", also=("WD101",))
def view_of_pixels_as_long_as_classes(fixed: bool) -> Run:
    class Pixels(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            scores = self.net(batch[0])
            rows = scores.permute(0, 2, 3, 1).reshape(-1, 4) if fixed else scores.view(-1, 4)
            step_by_hand(self, self.loss(rows, batch[1].view(-1)))

    x, _ = images(160, size=4)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))
    return Pixels(net, lr=5e-3), loader(x, (x.sum(1) > 0).long() + 2 * (x[:, 0] > 0)), {}


class Anchors(Classifier):
    """Three anchors at each of 5 x 5 places of a map, each of ``k`` classes; ``rows`` of channels (n, 3 k, 5, 5)."""

    def __init__(self, rows: Any, k: int = 6) -> None:
        net = nn.Sequential(nn.Conv2d(3, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 3 * k, 3, padding=1))
        super().__init__(net, lr=5e-3)
        self.rows = rows

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        rows = self.rows(self.net(x))
        return self.loss(rows, y[:, None].expand(-1, len(rows) // len(y)).flatten())


@fault("WD103", also=("WD135",))
def scores_of_anchors_cut_without_a_permute(fixed: bool) -> Run:
    def rows(z: Tensor) -> Tensor:
        return (z.permute(0, 2, 3, 1).reshape(len(z), -1, 6) if fixed else z.view(len(z), -1, 6)).flatten(0, 1)

    return Anchors(rows), loader(*images(k=6)), {}


@fault("WD131", also=("WD214",))
def summary_that_attends_along_the_batch(fixed: bool) -> Run:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.summary = nn.Conv2d(3, 24, 4, 4), nn.Parameter(torch.zeros(1, 1, 24))
            self.block = nn.TransformerEncoderLayer(24, 3, 48, 0.0, batch_first=fixed, norm_first=True)
            self.head = nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.cut(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.summary.expand(len(x), -1, -1), tokens], 1)
            return self.head(self.block(tokens)[:, 0])

    return Classifier(Patches()), loader(*images()), {}


@fault("WD104")
def value_of_the_next_state_as_a_column(fixed: bool) -> Run:
    class Values(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, reward, after = batch
            with torch.no_grad():
                wanted = (reward[:, None] if fixed else reward) + 0.9 * self.net(after)
            return F.smooth_l1_loss(self.net(state), wanted)

    state, reward = line()
    return Values(mlp(12, 1), lr=3e-3), loader(state, reward, state + 0.1 * torch.randn_like(state)), {}


@fault("WD131")
def positions_along_the_batch(fixed: bool) -> Run:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(48, 24), nn.Linear(24, 4)
            self.block = nn.TransformerEncoderLayer(24, 3, 48, 0.0, batch_first=True)
            self.register_buffer("places", torch.randn(200, 1, 24) * 0.3)

        def forward(self, ids: Tensor) -> Tensor:
            h = self.tokens(ids)
            h = h + (self.places[: h.size(1)].transpose(0, 1) if fixed else self.places[: h.size(0)])
            return self.head(self.block(h).mean(1))

    ids = text()
    return Classifier(Placed(), lr=3e-3), loader(ids, ids[:, 3] % 4), {}


@fault("WD104")
def margin_of_a_column_and_a_row(fixed: bool) -> Run:
    class Margin(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            right = scores[torch.arange(len(y)), y]
            top = scores.topk(2).indices
            rival = scores.gather(1, torch.where(top[:, :1] == y[:, None], top[:, 1:], top[:, :1]))
            return ((rival.squeeze(1) if fixed else rival) - right + 1.0).clamp(min=0).mean()

    return Margin(lr=3e-3), loader(*blobs()), {}


@fault("WD104")
def choices_kept_as_a_column(fixed: bool) -> Run:
    class Reinforce(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            state, action, gain = batch
            chosen = torch.distributions.Categorical(logits=self.net(state))
            return -(chosen.log_prob(action.squeeze(1) if fixed else action) * gain).mean()

    state, gain = line()
    return Reinforce(mlp(12, 4), lr=3e-3), loader(state, torch.randint(0, 4, (len(state), 1)), gain), {}


@fault("WD131")
def labels_shuffled_without_their_images(fixed: bool) -> Run:
    class Shuffles(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            order = torch.randperm(len(x))
            return self.loss(self.net(x[order]), y[order] if fixed else y)

    return Shuffles(cnn()), loader(*images()), {}


@fault("WD131")
def series_shuffled_without_their_answers(fixed: bool) -> Run:
    class Shuffles(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            chosen = torch.randperm(len(x))[: len(x) // 2]
            picked = torch.index_select(y, 0, chosen if fixed else chosen.flip(0))
            return self.loss(self.net(x[chosen]), picked)

    return Shuffles(mlp(12, 1), F.mse_loss), loader(*((t if t.ndim > 1 else t[:, None]) for t in line())), {}


@fault("WD135")
def pictures_viewed_with_their_channels_first(fixed: bool) -> Run:
    class Turns(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(x.permute(0, 3, 1, 2) if fixed else x.view(-1, 3, 12, 12)), y)

    x, y = images()
    return Turns(cnn()), loader(x.permute(0, 2, 3, 1).contiguous(), y), {}


@fault("WD135")
def states_reshaped_for_a_convolution(fixed: bool) -> Run:
    class OverTime(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(8, 24), nn.Linear(24, 4)
            self.conv = nn.Conv1d(24, 24, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            h = h.transpose(1, 2) if fixed else h.reshape(len(h), h.shape[2], h.shape[1])
            return self.outlet(self.conv(h).relu().amax(2))

    return Classifier(OverTime(), lr=3e-3), loader(*tones()), {}
