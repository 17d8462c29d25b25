"""A generator of the step's own that is set to the same state before each step."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from ..evidence.data import Repeats
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .observer import Observer, in_samples, is_plain, loss_of
from .onlooker import Onlooker
from .operations import name_of
from .own_draws import own_generator
from .site import user_line

ALIKE = 6
"""Samples in which a line began to draw from the same state."""


class _States(Inside):
    """State of the generator before the first draw of each of the ``lines`` in one step."""

    def __init__(self, lines: frozenset[str]) -> None:
        super().__init__()
        self._lines = lines
        self.found: dict[str, bytes] = {}

    def take(self, function: Any, kwargs: dict[str, Any]) -> None:
        generator = own_generator(name_of(function), kwargs)
        if generator is not None and (line := user_line()) in self._lines and line not in self.found:
            self.found[line] = generator.get_state().numpy().tobytes()


class _StatesMode(Onlooker):
    def __init__(self, states: _States) -> None:
        super().__init__()
        self._states = states

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._states.do(self._states.take, func, kwargs)
        return self.call(func, args, kwargs)


class OwnSeedWatch(Observer):
    """Looks at later samples only where the loss of the first step was made of such numbers."""

    codes = ("WD124",)

    def __init__(self) -> None:
        self._lines: frozenset[str] = frozenset()
        self._first: dict[str, bytes] = {}
        self._states: _States | None = None
        self._alike = 0

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        run = at.run
        if not self._lines or at.stage != "train" or anything_compiled(run.module):
            return ()
        self._states = _States(self._lines)
        return (_StatesMode(self._states),)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if not at.run.automatic:
            self._begin(at, loss)

    def _begin(self, at: Moment, loss: Tensor | None) -> None:
        if loss is not None and is_plain(loss) and at.trace is not None and at.trace.followers is not None:
            self._lines |= at.trace.followers.own.behind(loss)

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if at.stage != "train":
            return
        states, self._states = self._states, None
        if states is None:
            self._begin(at, loss_of(output) if at.run.automatic else None)
            return
        states.tell()
        self._alike += 1
        self._first = self._first or states.found
        self._lines = frozenset(n for n, state in states.found.items() if self._first.get(n) == state)
        if self._lines and self._alike >= ALIKE:
            at.emit(Repeats(own=min(self._lines), alike=self._alike, **at.tags()))
            self._lines = frozenset()
