"""Code that compiles itself inside a watched step, as FlexAttention does: it runs without our torch modes.

Dynamo would trace into a torch function mode and refuse what it finds there, which ends the user's run.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import overrides
from torch.utils import _python_dispatch

from .replaced import replaced

OURS = __name__.partition(".")[0]


def compiled_code_unwatched() -> AbstractContextManager[None]:
    """While this is entered, functions that ``torch.compile`` makes are called with our modes off the stack."""

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            return _unwatched(made) if isinstance(made, FunctionType) else made

        return compile

    return replaced({(torch, "compile"): watching})


def _unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _modes_aside():
            return function(*args, **kwargs)

    return called


@contextmanager
def _modes_aside() -> Iterator[None]:
    """Our modes at the top of torch's two stacks are taken off, and put back in order."""
    taken: list[tuple[Callable[[Any], None], Any]] = []
    try:
        for stack in (overrides, _python_dispatch):
            while (mode := _top(stack)) is not None and type(mode).__module__.partition(".")[0] == OURS:
                stack._pop_mode()
                taken.append((stack._push_mode, mode))
        yield
    finally:
        for push, mode in reversed(taken):
            push(mode)


def _top(stack: Any) -> Any:
    if stack is overrides:
        return overrides._get_current_function_mode()  # type: ignore[no-untyped-call]
    return _python_dispatch._get_current_dispatch_mode()
