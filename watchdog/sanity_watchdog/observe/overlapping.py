"""Torch modes that are left in another order than they were entered in: torch takes off the newest, whoever leaves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

    def leaving(self, ours: type) -> Callable[[Function], Function]:
        """Makes an ``__exit__`` under which modes of the kind ``ours`` and those of the user's may overlap."""

        def made(real: Function) -> Function:
            @wraps(real)
            def leave(mode: Any, *error: Any) -> Any:
                with self._making_way(mode, ours):
                    return real(mode, *error)

            return leave

        return made

    @contextmanager
    def _making_way(self, mode: Any, ours: type) -> Iterator[None]:
        taken: list[Any] = []
        with suppress(Exception):
            for _ in range(_in_the_way(self._modes(), mode, ours)):
                taken.append(self._pop())
        try:
            yield
        finally:
            for one in reversed(taken):
                self._push(one)


def _in_the_way(modes: list[Any], mode: Any, ours: type) -> int:
    """How many of the newest: all that came after ``mode`` where it is one of ours, else only ours."""
    mine = isinstance(mode, ours)
    wanted = (one is mode if mine else not isinstance(one, ours) for one in reversed(modes))
    return next((i for i, found in enumerate(wanted) if found), 0)


FUNCTIONS = Stack(overrides._get_current_function_mode_stack, overrides._pop_mode, overrides._push_mode)
DISPATCH = Stack(
    _python_dispatch._get_current_dispatch_mode_stack, _python_dispatch._pop_mode, _python_dispatch._push_mode
)
