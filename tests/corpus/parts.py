"""Data and networks that several families of cases share."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier


def images(n: int = 320, k: int = 10, channels: int = 3, size: int = 12) -> tuple[Tensor, Tensor]:
    """One noisy pattern per class, standardised: (n, channels, size, size), labels (n,)."""
    y = torch.randint(0, k, (n,))
    x = torch.randn(k, channels, size, size)[y] + torch.randn(n, channels, size, size)
    return x / x.std(), y


def greys(n: int = 320) -> tuple[Tensor, Tensor]:
    """Ten classes of 8-bit grey images (n, 1, 12, 12)."""
    x, y = images(n, channels=1)
    return (x * 45 + 120).clamp(0, 250).byte(), y


def line(n: int = 512, d: int = 12) -> tuple[Tensor, Tensor]:
    """A noisy linear function of unit variance: (n, d), (n,)."""
    x = torch.randn(n, d)
    weights = torch.randn(d)
    return x, x @ (weights / weights.norm()) + 0.1 * torch.randn(n)


def tones(n: int = 320, t: int = 20, d: int = 8, k: int = 4) -> tuple[Tensor, Tensor]:
    """Sequences (n, t, d) whose pitch is their class."""
    y = torch.randint(0, k, (n,))
    angle = 0.5 * (1 + y[:, None, None]) * torch.arange(t)[:, None] + 2 * math.pi * torch.rand(n, 1, d)
    return 1.4 * angle.sin() + 0.3 * torch.randn(n, t, d), y


def walks(n: int = 320, t: int = 24, d: int = 3) -> Tensor:
    """Random walks (n, t, d)."""
    return torch.randn(n, t, d).cumsum(1) / t**0.5


def text(n: int = 320, t: int = 20, v: int = 48) -> Tensor:
    """Token ids 1 … v-1 (n, t), most of which follow from the one before; 0 is kept for padding."""
    ids = torch.randint(1, v, (n, t))
    for i in range(1, t):
        ids[:, i] = torch.where(torch.rand(n) < 0.8, (7 * ids[:, i - 1]) % (v - 1) + 1, ids[:, i])
    return ids


def cut(ids: Tensor, shortest: int, longest: int) -> Tensor:
    """The same with rows of random length, padded with 0."""
    return ids * (torch.arange(ids.shape[1]) < torch.randint(shortest, longest + 1, (len(ids), 1)))


def cnn(k: int = 10, channels: int = 3, width: int = 12) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, k),
    )


def deep(depth: int, activation: type[nn.Module] = nn.ReLU, d: int = 20, k: int = 10, width: int = 48) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(width if i else d, width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, k))


class SequenceEncoder(nn.Module):
    """Transformer encoder, mean over time, k scores: (n, t, d) to (n, k)."""

    def __init__(self, d: int = 8, k: int = 4, width: int = 24, dropout: float = 0.0, batch_first: bool = True) -> None:
        super().__init__()
        self.inlet, self.outlet = nn.Linear(d, width), nn.Linear(width, k)
        block = nn.TransformerEncoderLayer(width, 3, 2 * width, dropout, batch_first=batch_first)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.outlet(self.blocks(self.inlet(x)).mean(1))


class Attending(nn.Module):
    """Transformer over token ids that scores the first place: (n, t) to (n, 4).

    Args:
        hidden: from the ids, which keys nobody sees; the first one always is.
    """

    def __init__(self, hidden: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.hidden = hidden
        self.tokens, self.head = nn.Embedding(48, 24), nn.Linear(24, 4)
        block = nn.TransformerEncoderLayer(24, 3, 48, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.hidden(ids)
        hidden[:, 0] = False
        return self.head(self.blocks(self.tokens(ids), src_key_padding_mask=hidden)[:, 0])


class Decoder(nn.Module):
    """Pre-norm transformer over token ids: (n, t) to scores (n, t, v)."""

    def __init__(self, v: int = 48, width: int = 24, causal: bool = True, tied: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.token, self.place = nn.Embedding(v, width), nn.Embedding(32, width)
        block = nn.TransformerEncoderLayer(width, 3, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, v, bias=False)
        for part in (self.token, self.place, self.head):
            nn.init.normal_(part.weight, std=0.02)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, ids: Tensor) -> Tensor:
        t = ids.shape[1]
        x = self.token(ids) + self.place(torch.arange(t, device=ids.device))
        if not self.causal:
            return self.head(self.blocks(x))
        mask = nn.Transformer.generate_square_subsequent_mask(t, device=ids.device)
        return self.head(self.blocks(x, mask=mask, is_causal=True))


class Recurrent(nn.Module):
    """Last state of an LSTM: (n, t, d) to (n, k)."""

    def __init__(self, d: int = 8, k: int = 4, width: int = 24) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(d, width, batch_first=True), nn.Linear(width, k)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Language(Classifier):
    """Predicts the next token; what equals ``padding`` does not count."""

    def __init__(self, net: nn.Module | None = None, padding: int = 0, shift: int = 1, **kwargs: Any) -> None:
        super().__init__(Decoder() if net is None else net, **{"lr": 3e-3, **kwargs})
        self.padding, self.shift = padding, shift

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        ids = batch["ids"] if isinstance(batch, dict) else batch[0]
        end = ids.shape[1] - self.shift
        scores = self.net(ids[:, :end])
        return F.cross_entropy(scores.flatten(0, 1), ids[:, self.shift :].flatten(), ignore_index=self.padding)


class Halves(Classifier):
    """A backbone and a head."""

    def __init__(self, backbone: nn.Module | None = None, **kwargs: Any) -> None:
        super().__init__(nn.Identity(), **kwargs)
        self.backbone, self.head = cnn(24) if backbone is None else backbone, nn.Linear(24, 10)

    def features(self, x: Tensor) -> Tensor:
        return torch.relu(self.backbone(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(self.head(self.features(batch[0])), batch[1])


class TableNet(nn.Module):
    """Columns of numbers beside an embedding of a category, whose ids are the last column of the table (n, d + 1)."""

    def __init__(self, d: int, k: int = 1, categories: int = 6) -> None:
        super().__init__()
        self.ids, self.net = nn.Embedding(categories, 4), nn.Sequential(nn.Linear(d + 4, 32), nn.ReLU())
        self.outlet = nn.Linear(32, k)

    def forward(self, table: Tensor) -> Tensor:
        both = torch.cat([table[:, :-1], self.ids(table[:, -1].long())], 1)
        return self.outlet(self.net(both)).squeeze(1)


def categories(x: Tensor, n: int = 6) -> Tensor:
    """The table (n, d) with a column of category ids behind it."""
    return torch.cat([x, torch.randint(0, n, (len(x), 1)).float()], 1)
