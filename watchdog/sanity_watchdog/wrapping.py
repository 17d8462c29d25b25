"""Methods of an object wrapped for one step, and given back exactly as they were."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any

from .observe.untraced import trace_with, untraced

_ABSENT = object()
_get, _set, _delete = object.__getattribute__, object.__setattr__, object.__delattr__
"""Whatever the user's class does then. ``vars`` would give the owner a dictionary: in CPython 3.11 and 3.12 every look
at one of its attributes takes longer from then on."""


class Wrapping:
    """Wraps methods as instance attributes; ``undo`` restores what was there, in reverse order.

    Attributes:
        raised: what a wrapped method has raised since the last ``undo``.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._before: list[_Watched] = []

    def wrap(
        self,
        owner: Any,
        name: str,
        around: Callable[[], AbstractContextManager[Any]],
        after: Callable[[Any], None] | None = None,
    ) -> None:
        """Run ``owner.name`` inside ``around()``, then hand its result to ``after``; both must not raise."""
        watched = _Watched(owner, name, self, around, after)
        self._before.append(watched)
        _set(owner, name, watched)

    def undo(self) -> None:
        """Give everything back. What somebody has put over a method meanwhile stays, and calls the method alone."""
        self.raised = None
        while self._before:
            watched = self._before.pop()
            watched.live = False
            if _get(watched.owner, watched.name) is not watched:
                continue
            if watched.before is _ABSENT:
                _delete(watched.owner, watched.name)
            else:
                _set(watched.owner, watched.name, watched.before)


class _Watched:
    """Stands in for ``owner.name`` while it is ``live``. A copy or pickle of the owner has the method itself."""

    def __init__(
        self,
        owner: Any,
        name: str,
        wrapping: Wrapping,
        around: Callable[[], AbstractContextManager[Any]],
        after: Callable[[Any], None] | None,
    ) -> None:
        self._method = functools.update_wrapper(self, getattr(owner, name)).__wrapped__
        self._wrapping, self._around, self._after = wrapping, around, after
        self.owner, self.name, self.live = owner, name, True
        self.before = _own(owner, name)

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = trace_with(None)
        if tracer is not None or not self.live:
            trace_with(tracer)
            return self._method(*args, **kwargs)
        with self._around():
            try:
                result = self._method(*args, **kwargs)
            except BaseException as error:
                self._wrapping.raised = error
                raise
        if self._after is not None:
            self._after(result)
        return result

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (getattr, (self.owner, self.name)) if self.before is _ABSENT else (_itself, (self.before,))


def _own(owner: Any, name: str) -> Any:
    """What the object itself has by that name."""
    found, made = _get(owner, name), getattr(type(owner), name, None)
    usual = isinstance(made, FunctionType) and getattr(found, "__func__", None) is made
    return _ABSENT if usual else vars(owner).get(name, _ABSENT)


def _itself(method: Any) -> Any:
    return method
