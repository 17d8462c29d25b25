"""Views that join or split axes across another one."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, loader

from .case import Run, fault
from .parts import images, tones


class Heads(nn.Module):
    """Attention by hand; ``apart`` splits (N, T, width) into heads, ``joined`` puts (N, heads, T, d) together."""

    def __init__(self, apart: Any, joined: Any) -> None:
        super().__init__()
        self.inlet, self.outlet = nn.Linear(8, 24), nn.Linear(24, 4)
        self.parts = nn.Linear(24, 72)
        self.apart, self.joined = apart, joined

    def forward(self, x: Tensor) -> Tensor:
        h = self.inlet(x)
        q, k, v = (self.apart(part) for part in self.parts(h).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v)
        return self.outlet((h + self.joined(seen)).amax(1))


def apart(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], 3, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


@fault("WD135")
def heads_split_across_the_steps(fixed: bool) -> Run:
    wrong = (
        lambda x: x.reshape(len(x), 3, x.shape[1], -1),
        lambda x: x.transpose(1, 2).reshape(len(x), x.shape[2], -1),
    )
    return Classifier(Heads(*((apart, joined) if fixed else wrong)), lr=3e-3), loader(*tones()), {}


@fault("WD135")
def heads_joined_across_the_steps(fixed: bool) -> Run:
    wrong = (apart, lambda x: x.reshape(len(x), x.shape[2], -1))
    return Classifier(Heads(*((apart, joined) if fixed else wrong)), lr=3e-3), loader(*tones()), {}


@fault("WD135")
def maps_read_as_frames(fixed: bool) -> Run:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.reader, self.outlet = nn.GRU(36, 16, batch_first=True), nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.conv(x).relu()
            n, _, _, frames = h.shape
            h = h.permute(0, 3, 1, 2).flatten(2) if fixed else h.view(n, frames, -1)
            return self.outlet(self.reader(h)[0][:, -1])

    x = torch.randn(512, 1, 9, 14)
    y = torch.arange(512) % 4
    x[torch.arange(512), 0, y] += 1.5
    return Classifier(Reads(), lr=3e-3), loader(x, y), {}


@fault("WD135")
def heads_laid_out_as_a_map(fixed: bool) -> Run:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Conv2d(3, 24, 1), nn.Linear(8, 10)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part.unflatten(1, (2, -1)).flatten(3).mT for part in self.inlet(x).chunk(3, 1))
            seen = F.scaled_dot_product_attention(q, k, v)
            seen = seen.mT if fixed else seen
            maps = seen.reshape(len(x), 2, 4, *x.shape[2:]).flatten(1, 2)
            return self.outlet(F.max_pool2d(maps, 3).mean((2, 3)))

    return Classifier(Beside(), lr=3e-3), loader(*images()), {}


@fault("WD135")
def patches_in_name_only(fixed: bool) -> Run:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(48, 24), nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            n = len(x)
            if fixed:
                x = x.reshape(n, 3, 4, 4, 4, 4).permute(0, 2, 4, 1, 3, 5)
            return self.outlet(self.inlet(x.reshape(n, 16, 48)).relu().mean(1))

    return Classifier(Patches(), lr=3e-3), loader(*images(size=16)), {}
