"""Which observers are told of which moments of a run."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from .observer import EVERY_STEP, IN_SAMPLES, MOMENTS, Observer

Methods: TypeAlias = list[tuple[Observer, Callable[..., Any]]]

OF_A_STEP = frozenset(
    (
        "batch",
        "output",
        "before_backward",
        "after_backward",
        "before_optimizer_step",
        "after_optimizer_step",
        "batch_end",
    )
)
"""Moments that every step has; all others are told to everyone who has a method for them."""


class Hooks:
    """Methods of observers by the name of their moment.

    Attributes:
        observers: everyone who looks.
        everyone: all methods.
        told: those that are called now; see ``choose``.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)
        self.everyone: dict[str, Methods] = defaultdict(list)
        self._early: dict[str, Methods] = defaultdict(list)
        self._resting: dict[str, Methods] = defaultdict(list)
        for observer in self.observers:
            for name in (n for n in MOMENTS if getattr(type(observer), n) is not getattr(Observer, n)):
                method = getattr(observer, name)
                self.everyone[name].append((observer, method))
                if name not in OF_A_STEP or not hasattr(method, IN_SAMPLES):
                    self._early[name].append((observer, method))
                if name not in OF_A_STEP or hasattr(method, EVERY_STEP):
                    self._resting[name].append((observer, method))
        self.told: dict[str, Methods] = self.everyone

    def settle(self, looks: Callable[[Observer, str], bool]) -> None:
        """From now on steps may be at rest: who looks there?"""
        for name in OF_A_STEP:
            self._resting[name] = [(o, method) for o, method in self._resting[name] if looks(o, name)]

    def at_rest(self) -> list[Observer]:
        """Who is told of steps at rest."""
        return list(dict.fromkeys(o for name in OF_A_STEP for o, _ in self._resting[name]))

    def choose(self, sampled: bool, resting: bool) -> None:
        """A step begins: a sampled one, one at rest, or neither."""
        self.told = self.everyone if sampled else self._resting if resting else self._early

    def drop(self, observer: Observer) -> None:
        """This one looks no more; lists that are being gone through stay as they are."""
        for table in (self.everyone, self._early, self._resting):
            for name, methods in table.items():
                table[name] = [pair for pair in methods if pair[0] is not observer]
