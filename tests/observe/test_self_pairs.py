"""Contrastive losses that compare a batch with itself, under a real Trainer."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, blobs, codes, loader, watched


class Contrastive(Classifier):
    """Two noisy views of each sample; ``scores`` and ``labels`` differ between the tests."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16)))

    def view(self, x: Tensor) -> Tensor:
        return F.normalize(self.net(x + 0.3 * torch.randn_like(x)), dim=1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        a, b = self.view(batch[0]), self.view(batch[0])
        return F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))


class WithItself(Contrastive):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        a = self.view(batch[0])
        return F.cross_entropy(a @ a.T / 0.2, torch.arange(len(a)))


class OpenDiagonal(Contrastive):
    mask = 0.0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        both, n = torch.cat([self.view(batch[0]), self.view(batch[0])]), len(batch[0])
        scores = both @ both.T / 0.2
        if self.mask:
            scores = scores.masked_fill(torch.eye(2 * n, dtype=torch.bool), self.mask)
        return F.cross_entropy(scores, (torch.arange(2 * n) + n) % (2 * n))


class ClosedDiagonal(OpenDiagonal):
    mask = -1e9


class InfiniteDiagonal(OpenDiagonal):
    mask = -torch.inf


class WithoutDiagonal(Contrastive):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        both, n = torch.cat([self.view(batch[0]), self.view(batch[0])]), len(batch[0])
        scores = (both @ both.T / 0.2)[~torch.eye(2 * n, dtype=torch.bool)].reshape(2 * n, -1)
        partners = (torch.arange(2 * n) + n) % (2 * n)
        return F.cross_entropy(scores, partners - (partners > torch.arange(2 * n)).long())


class Towers(Contrastive):
    """Two networks; the same item twice in a batch is masked."""

    same, mask, scale = False, -1e9, 1.0

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(12, 16)
        nn.init.normal_(self.items.weight, std=self.scale)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        item = batch[1]
        a = self.view(batch[0])
        b = a if self.same else self.items(item) if not self.scale else F.normalize(self.items(item))
        hits = (item[:, None] == item) & ~torch.eye(len(item), dtype=torch.bool)
        return F.cross_entropy((a @ b.T / 0.1).masked_fill(hits, self.mask), torch.arange(len(a)))


class TowersLowest(Towers):
    mask = torch.finfo(torch.float32).min


class TowersFromZero(Towers):
    scale = 0.0


class SameTower(Towers):
    same = True


class SameTowerInfinite(SameTower):
    mask = -torch.inf


class AsManyClasses(Contrastive):
    """A batch as large as the number of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(20, 32)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return F.cross_entropy(self.net(batch[0]), batch[1])


@pytest.mark.parametrize(
    ("build", "severity", "words"),
    [
        pytest.param(WithItself, Severity.ERROR, "pairs each of 32 samples with itself", id="own-positive"),
        pytest.param(SameTower, Severity.ERROR, "pairs each of 32 samples with itself", id="own-positive-masked"),
        pytest.param(SameTowerInfinite, Severity.ERROR, "pairs each of 32 samples with itself", id="own-positive-inf"),
        pytest.param(OpenDiagonal, Severity.WARNING, "ranks 64 samples against themselves", id="own-rival"),
    ],
)
def test_a_batch_against_itself_is_named(build: Any, severity: Severity, words: str) -> None:
    dog = watched(build(), loader(*blobs(256)))
    assert codes(dog) == ["WD103"]
    assert dog.alerts[0].severity is severity
    assert words in dog.alerts[0].message


@pytest.mark.parametrize(
    "build",
    [
        *(Contrastive, ClosedDiagonal, InfiniteDiagonal, WithoutDiagonal, AsManyClasses),
        *(Towers, TowersLowest, TowersFromZero),
    ],
    ids=lambda b: b.__name__,
)
def test_views_and_masks_are_quiet(build: Any) -> None:
    assert "WD103" not in codes(watched(build(), loader(*blobs(256))))
