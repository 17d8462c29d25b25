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
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
    handle_torch_function,
)

from .calls import Marks
from .overlapping import FUNCTIONS
from .replaced import Key, replaced
from .site import on_behalf_of

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HANDLING = handle_torch_function.__code__
_LEVELS = 3
"""Frames that stand in for those around a Python function of torch's: ``stacklevel`` is 5 in ``nn.Softmax``."""
_KNOWN: dict[CodeType, Callable[..., Any]] = {f.__code__: f for f in vars(F).values() if isinstance(f, FunctionType)}


class Onlooker(TorchFunctionMode):
    """Base of these modes: ``saw`` calls the function with ``call``, and may look before and after."""

    def __init__(self) -> None:
        super().__init__()
        self._paths: AbstractContextManager[None] | None = None

    def __enter__(self) -> Any:
        self._paths = replaced(_CHANGED)
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
        if is_compiling() or not all(issubclass(kind, Tensor) for kind in types):  # a tracer's, torch.fx's included
            return func(*args, **(kwargs or {}))
        with suppress(Exception):
            func = _meant(func)
        return self.saw(func, args, kwargs or {})

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``func``, which has been called; what it raises passes."""
        return self.call(func, args, kwargs)

    @staticmethod
    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``func``, for ``saw`` itself to call: warnings name the lines that they name without us."""
        with suppress(Exception):
            frame, levels = sys._getframe(3), 1
            if frame.f_code is _HANDLING and frame.f_back is not None and frame.f_back.f_back is not None:
                frame, levels = frame.f_back.f_back, _LEVELS
            func, args, kwargs = on_behalf_of(frame, levels, func, args, kwargs)
        return func(*args, **kwargs)


def _meant(function: Any) -> Any:
    """What has really been called, where somebody has wrapped it.

    Torch's Python functions hand themselves to a mode by looking their name up: what they find may be a wrapper, which
    has called them, and would run once more.
    """
    code, maker = getattr(function, "__code__", None), type(function).__module__
    if maker.startswith("torch.") or (maker == "builtins" and (code is None or _is_torchs(code.co_filename))):
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


def _asked(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def has_torch_function(*args: Any) -> Any:
        try:
            modes = _taken_off()
        except Exception:  # noqa: BLE001
            modes = []
        try:
            return real(*args)
        finally:
            for mode in modes:
                _push_mode(mode)  # type: ignore[no-untyped-call]

    return has_torch_function


def _taken_off() -> list[Any]:
    """Modes of ours, outermost first, that are left; none under one of the user's, which is heard of anyway."""
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    if not (modes and all(isinstance(mode, Onlooker) for mode in modes)):
        return []
    for _ in modes:
        _pop_mode()  # type: ignore[no-untyped-call]
    return list(modes)


def _unmarked(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def swap_tensors(*args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):
            Marks.let_go()
        return real(*args, **kwargs)

    return swap_tensors


_CHANGED: dict[Key, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    (torch.overrides, "has_torch_function"): _asked,
    (torch.utils, "swap_tensors"): _unmarked,
    (TorchFunctionMode, "__exit__"): FUNCTIONS.leaving(Onlooker),
}
"""What would tell that one of our modes is active: modules that take another path under a mode ask the first."""
