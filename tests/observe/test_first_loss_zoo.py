"""First losses of random-weight architectures: none may be an alarm. ``-s`` shows excess and margin of each."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks.initial_loss import ERRORS, HIGH, initial_loss_off
from sanity_watchdog.evidence.first_loss import FirstLoss
from sanity_watchdog.observe import intercept
from sanity_watchdog.observe.calls import Trace
from sanity_watchdog.observe.lineage import Lineage
from sanity_watchdog.observe.loss_evidence import first_loss
from sanity_watchdog.observe.loss_facts import Facts
from sanity_watchdog.observe.loss_statistics import measure


class Block(nn.Module):
    """Residual block; with ``norm`` it is ResNet's."""

    def __init__(self, w: int, norm: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(w, w, 3, padding=1), nn.BatchNorm2d(w) if norm else nn.Identity(), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.body(x))


def pooled(w: int, k: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(w, k)]


def resnet(k: int, norm: bool = True) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), *[Block(16, norm) for _ in range(4)], *pooled(16, k))


def resnet_kaiming(k: int) -> nn.Module:
    net = resnet(k)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return net


def plain_cnn(k: int) -> nn.Module:
    stages = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for a, b in ((3, 16), (16, 32))]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, k))


def mobile(k: int) -> nn.Module:
    def stage(w: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(w, w, 3, padding=1, groups=w), nn.BatchNorm2d(w), nn.Hardswish(), nn.Conv2d(w, w, 1), nn.ReLU6()
        )

    return nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), *[stage(24) for _ in range(3)], *pooled(24, k))


class ConvNeXt(nn.Module):
    def __init__(self, k: int, w: int = 24) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(3, w, 4, 4), nn.Conv2d(w, w, 3, padding=1, groups=w)
        self.norm, self.up, self.down = nn.LayerNorm(w), nn.Linear(w, 4 * w), nn.Linear(4 * w, w)
        self.scale, self.head = nn.Parameter(torch.full((w,), 1e-6)), nn.Linear(w, k)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.down(F.gelu(self.up(self.norm(self.deep(x).movedim(1, -1)))))
        return self.head((x.movedim(1, -1) + self.scale * y).mean((1, 2)))


class ViT(nn.Module):
    def __init__(self, k: int, w: int = 48, zero_head: bool = False) -> None:
        super().__init__()
        self.patch, self.cls = nn.Conv2d(3, w, 4, 4), nn.Parameter(torch.zeros(1, 1, w))
        self.place = nn.Parameter(torch.randn(1, 17, w) * 0.02)
        layer = nn.TransformerEncoderLayer(w, 4, 2 * w, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(w), nn.Linear(w, k)
        if zero_head:
            nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1) + self.place
        return self.head(self.norm(self.body(tokens))[:, 0])


class Mixer(nn.Module):
    def __init__(self, k: int, w: int = 32) -> None:
        super().__init__()
        self.patch, self.a, self.b = nn.Conv2d(3, w, 4, 4), nn.LayerNorm(w), nn.LayerNorm(w)
        self.across = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.along = nn.Sequential(nn.Linear(w, 64), nn.GELU(), nn.Linear(64, w))
        self.head = nn.Linear(w, k)

    def forward(self, x: Tensor) -> Tensor:
        t = self.patch(x).flatten(2).transpose(1, 2)
        t = t + self.across(self.a(t).transpose(1, 2)).transpose(1, 2)
        return self.head((t + self.along(self.b(t))).mean(1))


class UNet(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.down, self.mid = nn.Conv2d(3, 16, 3, 2, 1), Block(16)
        self.up, self.head = nn.ConvTranspose2d(16, 16, 2, 2), nn.Conv2d(19, k, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([x, F.relu(self.up(self.mid(F.relu(self.down(x)))))], 1))


class Decoder(nn.Module):
    """Causal language model in the manner of GPT-2; ``rms`` and ``tied`` change its norm and its head."""

    def __init__(self, k: int, w: int = 48, tied: bool = False, std: float = 0.02, rms: bool = False) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(k, w), nn.Embedding(64, w)
        layer = nn.TransformerEncoderLayer(w, 4, 4 * w, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.RMSNorm(w) if rms else nn.LayerNorm(w), nn.Linear(w, k, bias=False)
        for m in (self.token, self.place, self.head):
            nn.init.normal_(m.weight, std=std)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, ids: Tensor) -> Tensor:
        t = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        hidden = self.body(self.token(ids) + self.place(torch.arange(t)), mask, is_causal=True)
        return self.head(self.norm(hidden)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self, k: int, cell: type[nn.RNNBase] = nn.LSTM, words: int = 0, **kwargs: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 16) if words else nn.Identity()
        self.cell = cell(16, 32, batch_first=True, **kwargs)
        self.head = nn.Linear(64 if kwargs.get("bidirectional") else 32, k)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.cell(self.embed(x))[0]
        return self.head(hidden).transpose(1, 2) if isinstance(self.embed, nn.Embedding) else self.head(hidden[:, -1])


class DeepSets(nn.Module):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, k))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.each(x).mean(1))


class Graph(nn.Module):
    """Two rounds of messages over one random graph; every node has a label."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, k)

    def forward(self, x: Tensor) -> Tensor:
        near = (torch.rand(len(x), len(x)) < 0.1).float() + torch.eye(len(x))
        near = near / near.sum(1, keepdim=True)
        return near @ self.b(F.relu(near @ self.a(x)))


def mlp(k: int, width: int = 64, depth: int = 2, act: type[nn.Module] = nn.ReLU, norm: bool = False) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(16 if i == 0 else width, width), nn.LayerNorm(width) if norm else nn.Identity(), act()]
    return nn.Sequential(*layers, nn.Linear(width, k))


def xavier(k: int) -> nn.Module:
    net = mlp(k, 128)
    for m in net.modules():
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    return net


def unit_embedding(k: int) -> nn.Module:
    """Tied embedding of deviation 1 whose scores are scaled by 1/√width, in the manner of T5."""
    net = Decoder(k, tied=True, std=1.0)
    norm = net.norm
    net.norm = nn.Sequential(norm, Scale(48**-0.5))
    return net


class Scale(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


IMAGES, TOKENS, VECTORS, SERIES, PIXELS = "images", "tokens", "vectors", "series", "pixels"
ZOO: dict[str, tuple[Callable[[int], nn.Module], str, int, int]] = {
    "resnet": (resnet, IMAGES, 10, 32),
    "resnet, 1000 classes": (resnet, IMAGES, 1000, 16),
    "resnet, fan-out": (resnet_kaiming, IMAGES, 100, 64),
    "resnet without norm": (lambda k: resnet(k, False), IMAGES, 10, 32),
    "plain cnn": (plain_cnn, IMAGES, 2, 8),
    "mobile": (mobile, IMAGES, 100, 128),
    "convnext": (ConvNeXt, IMAGES, 1000, 32),
    "vit": (ViT, IMAGES, 100, 64),
    "vit, zero head": (lambda k: ViT(k, zero_head=True), IMAGES, 21_000, 16),
    "mixer": (Mixer, IMAGES, 10, 512),
    "unet": (UNet, PIXELS, 21, 4),
    "unet, batch of one": (UNet, PIXELS, 5, 1),
    "gpt": (Decoder, TOKENS, 50_257, 2),
    "gpt, tied": (lambda k: Decoder(k, tied=True), TOKENS, 1000, 8),
    "gpt, rms norm": (lambda k: Decoder(k, rms=True), TOKENS, 32_000, 4),
    "gpt, torch's head": (lambda k: Decoder(k, std=48**-0.5), TOKENS, 256, 16),
    "t5": (unit_embedding, TOKENS, 512, 8),
    "lstm language model": (lambda k: Recurrent(k, words=k), TOKENS, 5000, 16),
    "lstm": (Recurrent, SERIES, 4, 32),
    "gru, both ways": (lambda k: Recurrent(k, nn.GRU, bidirectional=True), SERIES, 2, 2),
    "deep sets": (DeepSets, SERIES, 40, 32),
    "graph": (Graph, VECTORS, 7, 140),
    "mlp": (mlp, VECTORS, 10, 128),
    "mlp, two classes, batch of two": (mlp, VECTORS, 2, 2),
    "mlp, deep tanh": (lambda k: mlp(k, depth=8, act=nn.Tanh), VECTORS, 10, 64),
    "mlp, layer norm": (lambda k: mlp(k, norm=True), VECTORS, 50_000, 512),
    "mlp, xavier": (xavier, VECTORS, 100, 32),
    "linear": (lambda k: nn.Linear(16, k), VECTORS, 3, 16),
}


def batch(kind: str, k: int, n: int) -> tuple[Tensor, Tensor]:
    if kind == IMAGES:
        return torch.randn(n, 3, 16, 16), torch.randint(0, k, (n,))
    if kind == PIXELS:
        return torch.randn(n, 3, 16, 16), torch.randint(0, k, (n, 1, 1)).expand(-1, 16, 16).contiguous()
    if kind == TOKENS:
        ids = (torch.rand(n, 33).square() * k).long()
        return ids[:, :-1], ids[:, 1:].contiguous()
    return torch.randn(n, *((20,) if kind == SERIES else ()), 16), torch.randint(0, k, (n,))


def first(make: Callable[[int], nn.Module], kind: str, k: int, n: int) -> FirstLoss:
    net, (x, y) = make(k), batch(kind, k, n)
    trace = Trace(followed=True)
    seen = intercept.Interception(trace, lambda call: None, 0)
    with torch.no_grad(), intercept.FollowingMode(seen, Lineage(trace, (x, y), True)):
        F.cross_entropy(net(x), y)
    assert seen.fault is None
    (call,) = trace.calls
    numbers = {name: float(value) for name, value in measure(call).items()}
    found = first_loss(Facts.of(call, None, first=True), numbers, {})
    assert found is not None
    return found


@pytest.mark.parametrize("name", ZOO)
def test_random_weights_raise_no_alarm(name: str) -> None:
    make, kind, k, n = ZOO[name]
    for seed in range(2):
        torch.manual_seed(seed)
        seen = first(make, kind, k, n)
        limit = HIGH + ERRORS * seen.standard_error
        line = f"{name:34s} k {k:6,} batch {n:3d} excess {seen.excess:+.3f} limit {limit:.3f}"
        print(f"{line} margin {limit - seen.excess:.3f}")
        assert math.isclose(seen.expected, math.log(k), rel_tol=1e-5)
        assert all(f.severity < Severity.WARNING for f in initial_loss_off(seen) if isinstance(f, Alert))


def test_half_of_all_scores_fifteen_times_too_large_are_an_alarm() -> None:
    """Of 158 larger architectures 70 % are; the small heads here begin closer to zero."""
    alarms = {}
    for name, (make, kind, k, n) in ZOO.items():
        torch.manual_seed(0)
        seen = first(lambda k, make=make: nn.Sequential(make(k), Scale(15.0)), kind, k, n)  # type: ignore[misc]
        alarms[name] = any(f.severity >= Severity.WARNING for f in initial_loss_off(seen) if isinstance(f, Alert))
    assert sum(alarms.values()) >= len(ZOO) / 2
