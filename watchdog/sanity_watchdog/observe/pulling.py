"""Whether all that steps do is to pull outputs together: told by three of them, since the next may push them apart."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from ..evidence.targets import Attraction
from .calls import LossCall, Trace
from .distributions import likelihoods
from .followers import Followers
from .intercept import FollowingMode, Interception, anything_compiled
from .lineage import Lineage
from .moment import Moment
from .observer import Observer, in_samples, loss_of
from .telling import pulled

STEPS = 3
"""Sampled steps that must all pull: of losses that take turns by two or three, one of them pushes."""


class PullingObserver(Observer):
    """Follows the steps after the first once more, where all that the first did was to pull."""

    codes = ("WD115",)

    def __init__(self) -> None:
        self._found: Attraction | None = None
        self._steps = 0
        self._over = False
        self._trace: Trace | None = None
        self._followers: Followers | None = None
        self._passes: list[tuple[str, ...]] = []

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        self._trace = self._followers = None
        self._passes = []
        if at.stage != "train" or self._over:
            return ()
        if at.trace is not None and at.trace.followed:
            self._trace = at.trace
            return ()
        if self._found is None or anything_compiled(at.run.module):
            return ()
        interception = Interception(Trace(followed=True), _ignore, 1)
        lineage = Lineage(interception.trace, batch, True, _ignore, at.run)
        self._followers = interception.trace.followers
        assert self._followers is not None
        return likelihoods(interception, self._followers), FollowingMode(interception, lineage)

    def output(self, at: Moment, output: Any) -> None:
        if at.run.automatic:
            self._take(loss_of(output))

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if not at.run.automatic:
            self._take(loss)

    def _take(self, loss: Tensor | None) -> None:
        if self._followers is not None and loss is not None:
            self._passes.append(pulled(self._followers.signs, loss))

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        passes = self._passes if self._trace is None else self._trace.pulled
        self._trace = self._followers = None
        if not passes or self._over:
            return
        lines = passes[0] if len(passes) == 1 else ()  # other passes of the step may push
        found = Attraction(lines=lines, **at.tags())
        self._found = found if self._found is None else self._found
        self._steps += 1
        if not lines or self._steps == STEPS:
            self._over = True
            at.emit(self._found if lines else found)

    def end(self, at: Moment) -> None:
        if not self._over and self._found is not None:
            at.emit(self._found)


def _ignore(call: LossCall) -> None:
    """What a loss call gives is known."""
