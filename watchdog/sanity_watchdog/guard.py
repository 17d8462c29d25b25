"""The wall between the watchdog and the run."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from .handlers import from_handler
from .observe.untraced import trace_with, untraced
from .policy import SanityCheckFailed

P = ParamSpec("P")


class Faultable(Protocol):
    """What can be told of a fault of its own.

    Attributes:
        traced: has one of its hooks been called inside compiled code?
    """

    traced: bool

    def _own_fault(self, hook: str, error: Exception) -> None: ...


S = TypeVar("S", bound=Faultable)


def harmless(hook: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Nothing that goes wrong in a hook reaches the run, except the policy's own exception."""

    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        tracer = trace_with(None)
        if tracer is not None:
            self.traced = True
        try:
            hook(self, *args, **kwargs)
        except SanityCheckFailed:
            raise
        except Exception as error:
            if from_handler(error):
                raise
            self._own_fault(hook.__name__, error)
        finally:
            if tracer is not None:
                trace_with(tracer)

    functools.update_wrapper(guarded, hook)
    return untraced(guarded)
