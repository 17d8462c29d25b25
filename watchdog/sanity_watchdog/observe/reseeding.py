"""Is the global generator set to the same state in each step?"""

from typing import Any

import torch
from torch.utils.data import DataLoader

from ..evidence.data import Repeats
from .moment import Moment
from .observer import Observer, in_samples
from .run import Run

ALIKE = 6
"""Samples, the first one included, at whose end the generator was in the same state."""


class ReseedingWatch(Observer):
    """Compares the generator of the host between samples, where the first step has seeded it and drawn numbers."""

    codes = ("WD124",)

    def __init__(self) -> None:
        self._seed = -1
        self._state: bytes | None = None
        self._where = ""
        self._alike = self._epoch = 0
        self._over = False

    def start(self, run: Run, at: Moment) -> None:
        # each epoch of such a loader draws a number of the global generator: a step that only once seeded it is told
        self._over = not all(isinstance(d, DataLoader) and d.generator is None for d in run.loaders)

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if self._state is None:
            self._seed = torch.initial_seed()

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if self._over or at.stage != "train":
            return
        if self._state is None:
            self._where = at.trace.drawn_at if at.trace is not None else ""
            if not self._where or torch.initial_seed() == self._seed:
                self._over = True
                return
            self._epoch = at.epoch
        state = torch.default_generator.get_state().numpy().tobytes()
        self._over = self._state is not None and state != self._state
        self._state, self._alike = state, self._alike + 1
        if not self._over and self._alike >= ALIKE and at.epoch > self._epoch:
            self._over = True
            at.emit(Repeats(reseeded=self._where, alike=self._alike, **at.tags()))
