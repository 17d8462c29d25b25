"""Follows optimizers by identity and age: do they keep what they remember of past gradients?"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..evidence.loop import StateLosses
from ..evidence.readings import Unseen
from .membership import SHARDED
from .moment import Moment
from .observer import Observer
from .run import Run
from .scaler import inner
from .untraced import untraced


class StateObserver(Observer):
    """Reads identities and step counters on the host; never a device."""

    codes = ("WD511",)

    def __init__(self) -> None:
        self._watching = False
        self._known: dict[int, weakref.ref[Optimizer]] = {}
        self._ages: dict[int, float] = {}
        self._made = self._unseen = self._emptied = self._own = self._epochs = 0
        self._met = -1
        self._kind = ""

    def start(self, run: Run, at: Moment) -> None:
        if run.strategy.startswith(SHARDED):
            at.emit(Unseen(**at.tags(), codes=self.codes, reason=f"{run.strategy} shards the state"))
            return
        self._watching = bool(run.optimizers)
        self._known = {id(o): weakref.ref(o) for o in run.optimizers}

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        silent = self._watching and at.stage == "train" and not at.run.automatic and not self._own
        return (self._listening(at.batch),) if silent else ()

    @contextmanager
    def _listening(self, batch: int) -> Iterator[None]:
        """Sees optimizers step that no hook of Lightning tells of; one for each batch."""

        home = get_ident()

        @untraced
        def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if get_ident() == home and self._met < batch and remembers(optimizer):
                self._met = batch
                self._unseen += self._meet(optimizer)

        handle = register_optimizer_step_post_hook(stepped)
        try:
            yield
        finally:
            handle.remove()

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._watching:
            optimizer = inner(optimizer)
            self._own += 1
            if remembers(optimizer):
                if self._meet(optimizer):
                    self._made += 1
                else:
                    self._compare(optimizer)

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._watching:
            self._ages[id(optimizer)] = age(optimizer)

    def epoch_end(self, at: Moment) -> None:
        self._epochs += 1
        for optimizer in at.run.optimizers if self._watching else ():
            self._ages[id(optimizer)] = age(optimizer)

    def epoch_start(self, at: Moment) -> None:
        for optimizer in at.run.optimizers if self._watching else ():
            self._compare(optimizer)

    def batch_end(self, at: Moment, output: Any) -> None:
        if at.sampled:
            self._tell(at, at.batch + 1)

    def end(self, at: Moment) -> None:
        self._tell(at, at.batch, ended=True)

    def _meet(self, optimizer: Optimizer) -> bool:
        """Is this one new?"""
        known = self._known.get(id(optimizer))
        if known is not None and known() is optimizer:
            return False
        self._known[id(optimizer)] = weakref.ref(optimizer)
        self._ages.pop(id(optimizer), None)
        self._kind = type(optimizer).__name__
        return True

    def _compare(self, optimizer: Optimizer) -> None:
        now = age(optimizer)
        if now < self._ages.get(id(optimizer), 0.0) and begun_anew(optimizer):
            self._emptied += 1
            self._kind = type(optimizer).__name__
        self._ages[id(optimizer)] = now

    def _tell(self, at: Moment, batches: int, ended: bool = False) -> None:
        if self._watching:
            at.emit(
                StateLosses(
                    **at.tags(),
                    optimizer=self._kind,
                    made=self._made if self._own else self._unseen,  # inner loops make their own, outer ones step
                    emptied=self._emptied,
                    attempts=at.attempt + (not ended),
                    batches=batches,
                    own=self._own > 0,
                    over=ended or self._epochs > 0,
                )
            )


def remembers(optimizer: Optimizer) -> bool:
    """Does this optimizer keep anything from one step to the next?"""
    return not (isinstance(optimizer, torch.optim.SGD) and not any(g.get("momentum") for g in optimizer.param_groups))


def _count(optimizer: Optimizer) -> Any:
    """The step counter in its state, True where there is a state without one, None for no state."""
    states = getattr(optimizer, "state", None)
    for state in states.values() if isinstance(states, dict) else ():
        if isinstance(state, dict) and state:
            return state.get("step", any(value is not None for value in state.values()) or None)
    return None


def age(optimizer: Optimizer) -> float:
    """How often its counter was written to, 1 where its state has no counter, 0 for no state; reads no tensor."""
    count = _count(optimizer)
    return 0.0 if count is None else float(count._version + 1 if isinstance(count, Tensor) else count)


def begun_anew(optimizer: Optimizer) -> bool:
    """Asked where the age has fallen: has a counter gone back as well, or was it only moved, as from a device?"""
    count = _count(optimizer)
    if not isinstance(count, Tensor):
        return True
    return count.device.type == "cpu" and float(count) <= count._version + 1
