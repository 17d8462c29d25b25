"""Torch modes that are left in another order than they were entered in: torch takes off the newest, whoever leaves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from typing import Any

from torch import overrides
from torch.utils import _python_dispatch

from .replaced import Function


class Stack:
    """One of torch's two stacks of modes.

    Args:
        modes: all that are on it, the newest last. pop: takes off the newest. push: puts one on.
    """

    def __init__(self, modes: Callable[[], list[Any]], pop: Callable[[], Any], push: Callable[[Any], Any]) -> None:
        self._modes, self._pop, self._push = modes, pop, push

    @contextmanager
    def below(self, above: Callable[[list[Any]], int]) -> Iterator[None]:
        """As many of the newest modes as ``above`` tells of all of them are off the stack for a while."""
        taken: list[Any] = []
        with suppress(Exception):
            for _ in range(above(self._modes())):
                taken.append(self._pop())
        try:
            yield
        finally:
            for mode in reversed(taken):
                self._push(mode)

    def leaving(self, mine: type) -> Callable[[Function], Function]:
        """Makes an ``__exit__`` that leaves modes of the kind ``mine`` where they are, for modes of the user's."""

        def newest(modes: list[Any]) -> int:
            return next((i for i, mode in enumerate(reversed(modes)) if not isinstance(mode, mine)), 0)

        def made(real: Function) -> Function:
            @wraps(real)
            def leave(mode: Any, *error: Any) -> Any:
                with nullcontext() if isinstance(mode, mine) else self.below(newest):
                    return real(mode, *error)

            return leave

        return made


def newer_than(mode: Any) -> Callable[[list[Any]], int]:
    """How many modes have been entered after ``mode``."""
    return lambda modes: next((i for i, one in enumerate(reversed(modes)) if one is mode), 0)


FUNCTIONS = Stack(overrides._get_current_function_mode_stack, overrides._pop_mode, overrides._push_mode)
DISPATCH = Stack(
    _python_dispatch._get_current_dispatch_mode_stack, _python_dispatch._pop_mode, _python_dispatch._push_mode
)
