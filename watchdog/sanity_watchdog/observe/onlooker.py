"""Torch function modes of ours, under which everything computes what it computes without them."""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, wraps
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
    handle_torch_function,
)

from .fastpath import GUARDED, has_fast_path
from .replaced import replaced

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HANDLING = handle_torch_function.__code__
_KNOWN: dict[CodeType, Callable[..., Any]] = {f.__code__: f for f in vars(F).values() if isinstance(f, FunctionType)}


class Onlooker(TorchFunctionMode):
    """Base of these modes: ``saw`` calls the function, and may look before and after."""

    def __init__(self) -> None:
        super().__init__()
        self._paths: AbstractContextManager[None] | None = None

    def __enter__(self) -> Any:
        self._paths = _fast_paths()
        self._paths.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        paths, self._paths = self._paths, None
        try:
            super().__exit__(*error)  # type: ignore[no-untyped-call]
        finally:
            if paths is not None:
                paths.__exit__(None, None, None)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with suppress(Exception):
            func = _meant(func)
        return self.saw(func, args, kwargs or {})

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``func``, which has been called; what it raises passes."""
        return func(*args, **kwargs)


def _meant(function: Any) -> Any:
    """What has really been called, where somebody has wrapped it.

    Torch's Python functions hand themselves to a mode by looking their name up: what they find may be a wrapper, which
    has called them, and would run once more.
    """
    code = getattr(function, "__code__", None)
    if type(function).__module__ == "builtins" and (code is None or _is_torchs(code.co_filename)):
        return function
    handling = sys._getframe(2)
    asking = handling.f_back if handling.f_code is _HANDLING else None
    if asking is None or asking.f_code is code or not _is_torchs(asking.f_code.co_filename):
        return function
    known = _KNOWN.get(asking.f_code)
    if known is None:
        known = _KNOWN[asking.f_code] = FunctionType(asking.f_code, asking.f_globals)
    return known


@lru_cache(maxsize=256)
def _is_torchs(file: str) -> bool:
    return file.startswith(_TORCH)


def _fast_paths() -> AbstractContextManager[None]:
    """While one of our modes is active: modules that would take another path under it run without."""
    return replaced({(kind, "forward"): _unseen for kind in GUARDED})


def _unseen(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            modes = _taken_off(self)
        except Exception:  # noqa: BLE001
            modes = []
        try:
            return real(self, *args, **kwargs)
        finally:
            for mode in modes:
                _push_mode(mode)  # type: ignore[no-untyped-call]

    return forward


def _taken_off(module: Any) -> list[Any]:
    """Modes of ours, outermost first, that are left for a module; under one of the user's it has no fast path."""
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if not (modes and all(isinstance(mode, Onlooker) for mode in modes) and has_fast_path(module)):
        return []
    for _ in modes:
        _pop_mode()  # type: ignore[no-untyped-call]
    return list(modes)
