"""Views that keep neighbours together, whatever their lengths look like."""

from typing import Any

from torch import Tensor, nn

from tests.runs import Classifier, loader

from .case import Run, healthy
from .parts import images, tones
from .reshapes import Heads, apart, joined


@healthy
def heads_taken_apart_and_put_together() -> Run:
    return Classifier(Heads(apart, joined), lr=3e-3), loader(*tones()), {}


@healthy
def boxes_of_a_small_map() -> Run:
    class Boxes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 3), nn.ReLU(), nn.Conv2d(8, 8, 1))

        def forward(self, x: Tensor) -> Tensor:
            h = self.body(x).permute(0, 2, 3, 1).contiguous()
            return h.view(len(h), -1, 4).mean(1)

    x, y = images()
    return Classifier(Boxes(), lr=3e-3), loader(x, y % 4), {}


@healthy
def frames_stacked_in_pairs() -> Run:
    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader, self.outlet = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.outlet(self.reader(x.reshape(len(x), x.shape[1] // 2, -1))[0][:, -1])

    return Classifier(Stacked(), lr=3e-3), loader(*tones()), {}


@healthy
def channels_shuffled_between_groups() -> Run:
    class Shuffled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(8, 12, 3, padding=1), nn.Conv1d(12, 12, 3, groups=3)
            self.outlet = nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            h: Any = self.first(x.transpose(1, 2)).relu()
            n, channels, steps = h.shape
            h = h.view(n, 3, channels // 3, steps).transpose(1, 2).reshape(n, channels, steps)
            return self.outlet(self.second(h).amax(2))

    return Classifier(Shuffled(), lr=3e-3), loader(*tones()), {}


@healthy
def groups_of_whole_channels_as_tokens() -> Run:
    class Groups(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.outlet = nn.Conv2d(3, 16, 3, 3), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.outlet(self.body(x).relu().reshape(len(x), 4, 64).mean(1))

    return Classifier(Groups(), lr=3e-3), loader(*images()), {}
