"""Healthy runs whose axes look as if they were confused."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import cnn, images, line, text, tones, walks


@healthy
def kernels_of_all_pairs() -> Run:
    class Kernels(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, weight = batch
            z = self.net(x)
            lengths = z.square().sum(1, keepdim=True)
            apart = lengths + z.square().sum(1) - 2 * z @ z.T
            return (-apart / 2).exp().mean() + 0.01 * (weight * apart).mean()

    return Kernels(mlp(12, 6)), loader(*line(), batch_size=16), {}


@healthy
def columns_and_rows_whose_mean_is_the_same() -> Run:
    class Both(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            z = self.net(x)
            near = F.mse_loss(z, y[:, None], reduction="none")
            return (near + F.l1_loss(z.squeeze(1), y, reduction="none")).mean()

    return Both(mlp(12, 1), lr=3e-3), loader(*line()), {}


@healthy
def slots_with_as_many_classes() -> Run:
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 36), nn.Unflatten(1, (6, 6)))
    x, _ = line()
    return Classifier(net, lr=3e-3), loader(x, (x[:, :6] > 0).long() + 2 * (x[:, 6:] > 0)), {}


@healthy
def places_as_classes() -> Run:
    class Spans(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            return self.loss(scores, torch.stack([batch[0][..., 0].argmax(1), batch[0][..., 1].argmin(1)], 1))

    return Spans(nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2)), lr=5e-3), loader(walks(t=9)), {}


@healthy
def boxes_of_several_shapes() -> Run:
    class Boxes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x).view(len(x), 3, 5, 4, 4).permute(0, 1, 3, 4, 2)
            return self.loss(scores.reshape(-1, 5), y[:, None].expand(-1, 3, -1, -1).reshape(-1))

    x, _ = images(160, size=4)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 15, 1))
    return Boxes(net, lr=5e-3), loader(x, x.argmax(1)), {}


@healthy
def batches_whose_time_comes_first() -> Run:
    class Tags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.cell, self.head = nn.Embedding(48, 16), nn.GRU(16, 16), nn.Linear(16, 7)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.cell(self.token(ids))[0]).mT

    def collate(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        ids = torch.stack(rows, 1)
        return ids, ids % 7

    return Classifier(Tags(), lr=5e-3), DataLoader(text(t=10), 32, True, collate_fn=collate), {}  # type: ignore[arg-type]


@healthy
def one_series_whose_steps_are_the_batch() -> Run:
    class Next(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.net(batch[0][:-1]), batch[0][1:])

    return Next(mlp(3, 3), F.mse_loss, lr=3e-3), loader(walks(1, 640)[0], shuffle=False), {}


@healthy
def pairs_of_one_batch() -> Run:
    class Pairs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0].view(-1, 2, 8)
            return self.loss(self.net(x[:, 0]), x[:, 1])

    x = torch.randn(320, 1, 8) + 0.3 * torch.randn(320, 2, 8)
    return Pairs(mlp(8, 8), F.mse_loss, lr=3e-3), loader(x.flatten(0, 1), shuffle=False), {}


@healthy
def supports_and_queries_in_one_batch() -> Run:
    class Episodes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            z = self.net(batch[0].flatten(0, 1)).view(4, 8, 6)
            gaps = torch.cdist(z[:, 4:].reshape(-1, 6), z[:, :4].mean(1))
            return self.loss(-gaps.square(), torch.arange(4).repeat_interleave(4))

    centres = torch.randn(320, 1, 12) * 2
    return Episodes(mlp(12, 6), lr=3e-3), loader(centres + torch.randn(320, 8, 12), batch_size=4), {}


@healthy
def neighbours_of_the_batch() -> Run:
    class Near(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(12, 16), lr=3e-3)
            self.head = nn.Linear(16, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            near = torch.cdist(x, x).topk(4, largest=False).indices[:, 1:]
            return F.mse_loss(self.head(self.net(x)[near].mean(1))[:, 0], y)

    return Near(), loader(*line()), {}


@healthy
def gates_beside_a_row_of_as_many_features() -> Run:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.gate, self.outlet = nn.Linear(12, 32), nn.Linear(32, 1), nn.Linear(32, 1)
            self.scale = nn.Parameter(torch.ones(32))

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x).tanh()
            gate = self.gate(h).sigmoid()
            return self.outlet(h + gate * self.scale + gate * h.mean(0).detach())[:, 0]

    return Classifier(Gated(), F.mse_loss, lr=3e-3), loader(*line()), {}


class AmongSamples(nn.Module):
    """Rows of a table that attend to each other: (n, 20) to (n, 10)."""

    def __init__(self, by_hand: bool) -> None:
        super().__init__()
        self.inlet, self.head = nn.Linear(20, 32), nn.Linear(32, 10)
        self.layer = None if by_hand else nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x)
        if self.layer is None:
            return self.head(h + (h @ h.T / 6).softmax(1) @ h)
        return self.head(self.layer(h.unsqueeze(0)).squeeze(0))


@healthy
def attention_between_data_points() -> Run:
    return Classifier(AmongSamples(by_hand=False), lr=3e-3), loader(*blobs()), {}


@healthy
def attention_between_data_points_by_hand() -> Run:
    return Classifier(AmongSamples(by_hand=True), lr=3e-3), loader(*blobs()), {}


@healthy
def positions_of_batches_with_time_first() -> Run:
    """Ready batches (time, batch): the positions are cut to the first axis, which is time."""

    class Words(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Embedding(48, 24), lr=3e-3)
            self.block, self.head = nn.TransformerEncoderLayer(24, 3, 48, 0.0), nn.Linear(24, 48)
            self.register_buffer("places", torch.randn(200, 1, 24) * 0.3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            h = self.net(x)
            h = self.block(h + self.places[: len(h)], nn.Transformer.generate_square_subsequent_mask(len(h)))
            return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())

    rows = text(n=20, t=25 * 12 + 1).T
    parts = [(rows[i : i + 25], rows[i + 1 : i + 26]) for i in range(0, 25 * 12, 25)]
    return Words(), DataLoader(parts, batch_size=None), {}


@healthy
def recurrence_over_ready_batches_with_time_first() -> Run:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRU(8, 24), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cell(x)[0][-1])

    x, y = tones()
    parts = [(x[i : i + 16].transpose(0, 1).contiguous(), y[i : i + 16]) for i in range(0, len(x), 16)]
    return Classifier(Last(), lr=3e-3), DataLoader(parts, batch_size=None), {}


@healthy
def mixed_with_others_of_the_batch() -> Run:
    class Mixes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            order, share = torch.randperm(len(x)), float(torch.rand(()))
            z = self.net(share * x + (1 - share) * x[order])
            return share * self.loss(z, y) + (1 - share) * self.loss(z, y[order])

    return Mixes(cnn()), loader(*images()), {}


@healthy
def a_patch_of_another_image() -> Run:
    class Pastes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            order = torch.randperm(len(x))
            x[:, :, 2:8, 3:9] = x[order, :, 2:8, 3:9]
            z, share = self.net(x), 1 - 36 / 144
            return share * self.loss(z, y) + (1 - share) * self.loss(z, y[order])

    return Pastes(cnn()), loader(*images()), {}


@healthy
def pairs_of_the_same_class_or_not() -> Run:
    class Pairs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            order = torch.randperm(len(x))
            z = self.net(x)
            apart = (z - z[order]).square().sum(1)
            return F.binary_cross_entropy_with_logits(1 - apart, (y == y[order]).float())

    return Pairs(cnn(4)), loader(*images()), {}


@healthy
def the_worst_half_of_the_batch() -> Run:
    class Hardest(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            with torch.no_grad():
                worst = F.cross_entropy(self.net(x), y, reduction="none").topk(len(x) // 2).indices
            return self.loss(self.net(x[worst]), y[worst])

    return Hardest(mlp()), loader(*blobs()), {}


@healthy
def views_that_keep_the_order_of_the_axes() -> Run:
    """Heads split off and joined, patches cut out, axes of length one put elsewhere."""

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(36, 24), nn.Linear(24, 10)
            self.shuffled = nn.Conv2d(4, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            n = len(x)
            pixels = self.shuffled(F.pad(x, (0, 0, 0, 0, 0, 1)))
            pixels = pixels.view(n, 2, 4, 12, 12).transpose(1, 2).reshape(n, 8, 12, 12)
            patches = x.view(n, 3, 4, 3, 4, 3).permute(0, 2, 4, 1, 3, 5).reshape(n, 16, 27)
            h = self.inlet(F.pad(patches, (0, 9)))
            heads = h.view(n, 16, 3, 8).transpose(1, 2)
            h = (h + heads.softmax(-1).transpose(1, 2).reshape(n, 16, 24)).mean(1)
            h = h.reshape(n, 1, 24).view(n, 24, 1).squeeze(2)
            return self.outlet(h + pixels.mean((1, 2, 3))[:, None])

    return Classifier(Views(), lr=3e-3), loader(*images()), {}


@healthy
def one_distribution_over_all_pixels() -> Run:
    def loss(z: Tensor, places: Tensor) -> Tensor:
        return F.kl_div(z.flatten(1).log_softmax(1).view_as(z), places, reduction="batchmean")

    x = images(channels=1)[0]
    net = nn.Conv2d(1, 1, 5, padding=2)
    return Classifier(net, loss), loader(x, (2 * x).flatten(1).softmax(1).view_as(x)), {}


@healthy
def one_distribution_over_all_pairs() -> Run:
    def shares(weights: Tensor) -> Tensor:
        weights = weights * (1 - torch.eye(len(weights)))
        return weights / weights.sum()

    def loss(z: Tensor, x: Tensor) -> Tensor:
        near = shares((-torch.cdist(x, x).square() / 20).exp())
        return F.kl_div((shares(1 / (1 + torch.cdist(z, z).square())) + 1e-12).log(), near, reduction="sum")

    x = blobs()[0]
    return Classifier(mlp(k=2), loss), loader(x, x), {}


@healthy
def bins_from_channels_and_horizon_from_the_last_layer() -> Run:
    x = walks(t=20, d=1).transpose(1, 2)
    net = nn.Sequential(nn.Conv1d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 8, 3, padding=1), nn.Linear(12, 8))
    bins = torch.bucketize(x[:, 0, 12:].contiguous(), torch.linspace(-2, 2, 7))
    return Classifier(net), loader(x[:, :, :12].contiguous(), bins), {}


class Skewed(nn.Module):
    """Attention with relative positions, whose rows a view moves: by one more each."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.outlet = nn.Linear(8, 16), nn.Linear(16, 10)
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)
        self.places = nn.Parameter(torch.randn(20, 16) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x)
        q = self.query(h)
        places = F.pad(q @ self.places.T, (1, 0)).view(len(x), 21, 20)[:, 1:]
        weights = ((q @ self.key(h).mT + places) / 4).softmax(-1)
        return self.outlet((h + weights @ h).mean(1))


@healthy
def relative_positions_by_a_view() -> Run:
    return Classifier(Skewed(), lr=3e-3), loader(*tones()), {}


@healthy
def positions_that_turn_complex_numbers() -> Run:
    class Rotary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(8, 16), nn.Linear(16, 10)

        def forward(self, x: Tensor) -> Tensor:
            angles = torch.outer(torch.arange(20.0), 0.1 ** torch.arange(8.0))
            h = torch.view_as_complex(self.inlet(x).unflatten(-1, (8, 2)))
            turned = torch.view_as_real(h * torch.polar(torch.ones_like(angles), angles)).flatten(2)
            return self.outlet(F.scaled_dot_product_attention(turned, turned, turned).mean(1))

    return Classifier(Rotary(), lr=3e-3), loader(*tones()), {}


@healthy
def copies_that_want_gradients_after_a_logged_pass() -> Run:
    class Smooth(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())
            copied = x.detach().requires_grad_(True)
            loss = self.loss(self.net(copied), y)
            (slope,) = torch.autograd.grad(loss, copied, create_graph=True)
            return loss + slope.square().sum(1).mean()

    return Smooth(mlp()), loader(*blobs()), {}


@healthy
def perturbed_inputs_after_a_pass_of_their_own() -> Run:
    class Perturbed(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            clean = self.net(x).square().mean()
            noise = torch.zeros_like(x, requires_grad=True)
            (slope,) = torch.autograd.grad(self.loss(self.net(x + noise), y), noise)
            return self.loss(self.net(x + 0.05 * slope.sign()), y) + 0.001 * clean

    return Perturbed(mlp()), loader(*blobs()), {}


@healthy
def columns_of_a_map_as_classes() -> Run:
    class Columns(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return self.loss(self.net(x).flatten(0, 2), (y % 4)[:, None].expand(-1, 48).flatten())

    return Columns(nn.Sequential(nn.Conv2d(3, 12, 3, 3, 1), nn.Sigmoid(), nn.Conv2d(12, 12, 1))), loader(*images()), {}


@healthy
def moves_on_a_board_as_classes() -> Run:
    net = nn.Sequential(nn.Conv2d(3, 12, 3, 3, 1), nn.ReLU(), nn.Conv2d(12, 4, 1), nn.Flatten())
    x, y = images(640, k=64)
    return Classifier(net, lr=3e-3), loader(x, y), {}


@healthy
def samples_that_attend_to_each_other_before_a_zero_head() -> Run:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.block = nn.Linear(20, 24), nn.TransformerEncoderLayer(24, 3, 48, 0.0)
            self.head = nn.Linear(24, 10)
            nn.init.zeros_(self.head.weight)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            return self.head(h + self.block(h[:, None])[:, 0])

    return Classifier(Rows(), lr=3e-3), loader(*blobs()), {}
