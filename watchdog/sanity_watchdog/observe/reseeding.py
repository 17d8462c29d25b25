"""Is the global generator set to the same state in each step, or while each batch is loaded?"""

from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from ..evidence.data import Repeats
from .moment import Moment
from .observer import Observer, in_samples
from .run import Run

ALIKE = 6
"""Samples, the first one included, at whose end the generator was in the same state."""
FEWEST = 2
"""Batches of an epoch."""


class ReseedingWatch(Observer):
    """Compares the generator of the host between samples, where the first step has seeded it and drawn numbers."""

    codes = ("WD124",)

    def __init__(self) -> None:
        self._seed = -1
        self._state: bytes | None = None
        self._before = b""
        self._where = ""
        self._alike = self._epoch = 0
        self._over = False

    def start(self, run: Run, at: Moment) -> None:
        # each epoch of such a loader draws a number of the global generator: a step that only once seeded it is told
        self._over = not all(map(_draws, run.loaders))

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if self._over:
            return
        if self._state is None:
            self._seed, self._before = torch.initial_seed(), _state()
        elif torch.initial_seed() == self._seed:
            self._over = _state() == self._before  # loading or a hook has set it, or nobody draws

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if self._over or at.stage != "train":
            return
        if self._state is None:
            self._where = at.trace.drawn_at if at.trace is not None else ""
            if not self._where:
                self._over = True
                return
            self._epoch = at.epoch
        state = _state()
        self._over = self._state is not None and state != self._state
        self._state, self._alike = state, self._alike + 1
        if not self._over and self._alike >= ALIKE and at.epoch > self._epoch:
            self._over = True
            at.emit(Repeats(reseeded=self._where, alike=self._alike, **at.tags()))


class SeededLoadingWatch(Observer):
    """Compares the generator of the host where sampled steps begin.

    Steps that always draw from one state prove it; where no step touches the generator a new epoch does, for which the
    loader draws a number, if some were drawn since the seed was set.
    """

    codes = ("WD124",)

    def __init__(self) -> None:
        self._first: bytes | None = None
        self._draws: list[bool] = []
        self._epoch = 0
        self._over = self._draws_by_epoch = False

    def start(self, run: Run, at: Moment) -> None:
        self._draws_by_epoch = all(map(_draws, run.loaders))
        self._over = run.batches_per_epoch < FEWEST  # the same batch again may draw what its samples always draw

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if self._over:
            return
        state = _state()
        if self._first is None:
            self._first, self._epoch = state, at.epoch
        self._over = state != self._first
        if not self._over and len(self._draws) >= ALIKE and self._proven(at):
            self._over = True
            at.emit(Repeats(loading=True, alike=len(self._draws) + 1, **at.tags()))

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if not self._over and at.stage == "train":
            self._draws.append(_state() != self._first)

    def _proven(self, at: Moment) -> bool:
        fresh = torch.Generator().manual_seed(torch.initial_seed()).get_state().numpy().tobytes()
        by_epoch = self._draws_by_epoch and at.epoch > self._epoch and self._first != fresh
        return all(self._draws) or (by_epoch and not any(self._draws))


def _draws(loader: Any) -> bool:
    """Does each epoch of it draw a number of the global generator? A new iterator does, and one that shuffles."""
    if not isinstance(loader, DataLoader) or loader.generator is not None:
        return False
    sampler = loader.sampler
    return not loader.persistent_workers or (isinstance(sampler, RandomSampler) and sampler.generator is None)


def _state() -> bytes:
    return torch.default_generator.get_state().numpy().tobytes()
