"""Code that compiles itself inside a watched step, as FlexAttention does: it runs without our torch modes.

Dynamo would trace into a torch function mode and refuse what it finds there, which ends the user's run.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import nn, overrides
from torch.utils import _python_dispatch

from .replaced import replaced

OURS = __name__.partition(".")[0]


@contextmanager
def compiled_code_unwatched() -> Iterator[None]:
    """While this is entered, what ``torch.compile`` makes is called with our modes off the stack."""
    forwards: list[tuple[dict[str, Any], Any]] = []

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if isinstance(made, nn.Module) and "forward" in (own := vars(made)):
                forwards.append((own, own["forward"]))
                own["forward"] = _unwatched(own["forward"])
            return _unwatched(made) if isinstance(made, FunctionType) else made

        return compile

    try:
        with replaced({(torch, "compile"): watching}):
            yield
    finally:
        for own, forward in forwards:
            own["forward"] = forward


def _unwatched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _modes_aside():
            return function(*args, **kwargs)

    return called


@contextmanager
def _modes_aside() -> Iterator[None]:
    """Our modes at the top of torch's two stacks are taken off, and put back in order."""
    mode: Any
    taken: list[Callable[[], Any]] = []
    try:
        while _is_ours(mode := overrides._get_current_function_mode()):  # type: ignore[no-untyped-call]
            mode.__exit__(None, None, None)
            taken.append(mode.__enter__)
        while _is_ours(mode := _python_dispatch._get_current_dispatch_mode()):
            _python_dispatch._pop_mode()
            taken.append(functools.partial(_python_dispatch._push_mode, mode))
        yield
    finally:
        for put_back in reversed(taken):
            put_back()


def _is_ours(mode: Any) -> bool:
    return type(mode).__module__.partition(".")[0] == OURS
