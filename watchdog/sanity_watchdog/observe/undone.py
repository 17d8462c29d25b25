"""Compares what steps and epochs left with what the next ones began with: does anybody take it back?"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.movement import Boundary, Undone
from ..evidence.readings import Unseen
from .holding import held_by
from .membership import SHARDED
from .moment import Moment, Reader
from .names import parameter_names
from .observer import Observer, in_samples
from .run import Run
from .tensors import Measuring

FIRST, LAST = 1, 3
"""Attempts that follow each other in the samples; before the very first one a warm-up may have a rate of 0."""
BOUNDARIES = 3
"""Beginnings of epochs that are looked at."""
MATRICES, KEPT_EACH = 8, 512
"""Matrices compared, evenly over the depth of each optimizer's, and elements of each: 16 KiB each time."""


class UndoneObserver(Observer):
    """Samples the same elements around the first steps, and at the ends and beginnings of the first epochs."""

    codes = ("WD320",)

    def __init__(self) -> None:
        self._measuring = Measuring(MATRICES * KEPT_EACH, KEPT_EACH)
        self._matrices: dict[str, Tensor] = {}
        self._held: dict[int, set[str]] = {}
        self._before: dict[int, dict[str, Tensor]] = {}
        self._after: dict[int, tuple[dict[str, Tensor], dict[str, Tensor]]] = {}
        self._begun: dict[str, Tensor] = {}
        self._ended: dict[str, Tensor] = {}
        self._opened: tuple[int, dict[str, Tensor]] = (-1, {})
        self._waiting: list[tuple[dict[str, Tensor], ...]] = []
        self._steps: dict[int, list[float]] = {}
        self._boundaries: list[Boundary] = []
        self._asked = 0

    def start(self, run: Run, at: Moment) -> None:
        if run.strategy.startswith(SHARDED):
            at.emit(Unseen(**at.tags(), codes=self.codes, reason=f"{run.strategy} moves the parameters"))
            return
        names = parameter_names(run.module)
        device = next((p.device for p in run.module.parameters() if p.ndim > 1), run.device)
        for optimizer in run.optimizers:
            held = {id(p): p for p in held_by(optimizer) if p.ndim > 1}
            matrices = {names[key]: p for key, p in held.items() if key in names and p.device == device}
            chosen = list(matrices)[:: -(-len(matrices) // MATRICES) or 1]
            self._held[id(optimizer)] = set(chosen)
            self._matrices |= {name: matrices[name] for name in chosen}

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._ask_epochs(at)
        key = id(optimizer)
        past = self._after.pop(key, None)
        self._before.pop(key, None)
        if not FIRST <= at.attempt <= LAST or key not in self._held:
            return
        self._before[key] = now = self._samples(self._held[key])
        if past is not None:

            def arrived(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
                self._steps.setdefault(key, []).append(_left(values["sums"]))
                yield self._undone(at)

            self._ask(at, {"sums": _sums(*past, now)}, arrived)

    @in_samples
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        before = self._before.pop(id(optimizer), None)
        if before is not None:
            self._after[id(optimizer)] = before, self._samples(before)

    def validation_opens(self, at: Moment) -> None:
        if self._begun:
            self._opened = at.batch, self._samples(self._begun)

    def epoch_end(self, at: Moment) -> None:
        if self._begun:
            self._ended = self._samples(self._begun)

    def epoch_start(self, at: Moment) -> None:
        if not self._ended:
            self._begun = self._samples(set(self._matrices)) if not self._asked else {}
            return
        now, (last, opened) = self._samples(self._begun), self._opened
        self._waiting.append((self._begun, self._ended, now, opened if last + 1 == at.batch else {}))
        self._asked += 1
        self._begun, self._ended = now if self._asked < BOUNDARIES else {}, {}

    def end(self, at: Moment) -> None:
        self._ask_epochs(at)
        if self._held:
            at.emit(self._undone(at))

    def _ask_epochs(self, at: Moment) -> None:
        """What was copied between samples is compared in the next one."""
        for begun, ended, now, opened in self._waiting:

            def arrived(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
                sums = values["sums"]
                after = [_left(values[name]) for name in ("restored", "kept") if name in values]
                self._boundaries.append(Boundary(_left(sums), _kinship(sums), max(after, default=math.nan)))
                yield self._undone(at)

            asked = {"sums": _sums(begun, ended, now)}
            if opened:
                asked |= {"restored": _sums(begun, opened, ended), "kept": _sums(begun, opened, now)}
            self._ask(at, asked, arrived)
        self._waiting.clear()

    def _samples(self, names: Mapping[str, Tensor] | set[str]) -> dict[str, Tensor]:
        return self._measuring.samples({n: p for n, p in self._matrices.items() if n in names and p.requires_grad})

    def _ask(self, at: Moment, asked: Mapping[str, Tensor | None], then: Reader) -> None:
        found = {name: sums for name, sums in asked.items() if sums is not None}
        if "sums" in found:
            at.ask(found, then)

    def _undone(self, at: Moment) -> Undone:
        steps = tuple(tuple(found) for found in self._steps.values())
        return Undone(**at.tags(), steps=steps, epochs=tuple(self._boundaries))


@torch.no_grad()
def _sums(old: Mapping[str, Tensor], new: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> Tensor | None:
    """Over what all three have; None where that is nothing."""
    names = [n for n in now if n in old and n in new]
    if not names:
        return None
    a, b, c = (torch.cat([x[n] for n in names]).float() for x in (old, new, now))
    cut = ((c == 0) & (a != 0)).float()
    return torch.stack([(c - a).square(), (b - a).square(), b * c, b.square(), c.square(), cut]).sum(1)


def _left(sums: Tensor) -> float:
    """Norm of what was left of a change over that of the change; NaN where nothing changed, or units were pruned."""
    left, change, *_, cut = sums.tolist()
    return math.sqrt(left / change) if change > 0 and not cut else math.nan


def _kinship(sums: Tensor) -> float:
    """Cosine between the weights at the end of an epoch and those at the beginning of the next; NaN for zeros."""
    both, ended, begun = sums.tolist()[2:5]
    return both / math.sqrt(ended * begun) if ended * begun > 0 else math.nan
