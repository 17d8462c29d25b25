"""Clipping beside a loss scaler of the module's own, in real runs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.runs import Classifier, Manual, assert_awake, blobs, codes, loader, watched


class OwnScaler(Manual):
    """``update`` does everything between backward and the next batch."""

    def __init__(self, update: Callable[["OwnScaler", Any], None], **kwargs: Any) -> None:
        super().__init__()
        self.update, self.scaler = update, torch.amp.GradScaler("cpu", **kwargs)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers().optimizer
        optimizer.zero_grad()
        self.scaler.scale(Classifier.training_step(self, batch, batch_idx)).backward()
        self.update(self, optimizer)

    def stepped(self, optimizer: Any) -> None:
        self.scaler.step(optimizer)
        self.scaler.update()

    def clip(self, value: float = 1.0) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), value)


def clips_first(module: OwnScaler, optimizer: Any) -> None:
    module.clip()
    module.stepped(optimizer)


def unscales_after(module: OwnScaler, optimizer: Any) -> None:
    module.clip()
    module.scaler.unscale_(optimizer)
    module.stepped(optimizer)


def unscales_first(module: OwnScaler, optimizer: Any) -> None:
    module.scaler.unscale_(optimizer)
    module.clip()
    module.stepped(optimizer)


def scales_the_limit(module: OwnScaler, optimizer: Any) -> None:
    module.clip(module.scaler.get_scale())
    module.stepped(optimizer)


def divides_by_hand(module: OwnScaler, optimizer: Any) -> None:
    for p in module.parameters():
        p.grad /= module.scaler.get_scale()
    module.clip()
    optimizer.step()


def measures(module: OwnScaler, optimizer: Any) -> None:
    module.clip(torch.inf)
    module.stepped(optimizer)


def clips_nothing(module: OwnScaler, optimizer: Any) -> None:
    module.clip(1e9)
    module.stepped(optimizer)


def run(module: OwnScaler) -> Any:
    return watched(module, loader(*blobs()), max_steps=-1, max_epochs=2)


@pytest.mark.parametrize("update", [clips_first, unscales_after], ids=lambda f: f.__name__)
def test_a_clip_before_the_own_scaler_is_named(update: Any) -> None:
    dog = run(OwnScaler(update))
    (alert,) = (a for a in dog.alerts if a.code == "WD206")
    assert "clipped to 1 while scaled by 65536" in alert.message


@pytest.mark.parametrize(
    "build",
    [
        *(lambda f=f: OwnScaler(f) for f in (unscales_first, scales_the_limit, divides_by_hand)),
        *(lambda f=f: OwnScaler(f) for f in (measures, clips_nothing)),
        lambda: OwnScaler(clips_first, enabled=False),
        lambda: OwnScaler(clips_first, init_scale=2.0),
    ],
    ids=["unscaled", "scaled-limit", "by-hand", "measured", "above", "disabled", "small-scale"],
)
def test_clips_at_their_place_are_quiet(build: Callable[[], OwnScaler]) -> None:
    dog = run(build())
    assert_awake(dog)
    assert "WD206" not in codes(dog)
