"""Methods of an object wrapped for one step, and given back exactly as they were."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .observe.untraced import trace_with, untraced

_ABSENT = object()


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
        vars(owner)[name] = watched

    def undo(self) -> None:
        """Give everything back. What somebody has put over a method meanwhile stays, and calls the method alone."""
        self.raised = None
        while self._before:
            watched = self._before.pop()
            watched.live, own = False, vars(watched.owner)
            if own.get(watched.name) is not watched:
                continue
            if watched.before is _ABSENT:
                del own[watched.name]
            else:
                own[watched.name] = watched.before


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
        self.before = vars(owner).get(name, _ABSENT)

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


def _itself(method: Any) -> Any:
    return method
