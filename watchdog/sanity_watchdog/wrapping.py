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
        self._before: list[tuple[Any, str, Any, Any, list[bool]]] = []

    def wrap(
        self,
        owner: Any,
        name: str,
        around: Callable[[], AbstractContextManager[Any]],
        after: Callable[[Any], None] | None = None,
    ) -> None:
        """Run ``owner.name`` inside ``around()``, then hand its result to ``after``; both must not raise."""
        method, live = getattr(owner, name), [True]

        @functools.wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            tracer = trace_with(None)
            if tracer is not None or not live:
                trace_with(tracer)
                return method(*args, **kwargs)
            with around():
                try:
                    result = method(*args, **kwargs)
                except BaseException as error:
                    self.raised = error
                    raise
            if after is not None:
                after(result)
            return result

        self._before.append((owner, name, vars(owner).get(name, _ABSENT), untraced(watched), live))
        vars(owner)[name] = watched

    def undo(self) -> None:
        """Give everything back. What somebody has put over a method meanwhile stays, and calls the method alone."""
        self.raised = None
        while self._before:
            owner, name, before, watched, live = self._before.pop()
            live.clear()
            if vars(owner).get(name) is not watched:
                continue
            if before is _ABSENT:
                del vars(owner)[name]
            else:
                vars(owner)[name] = before
