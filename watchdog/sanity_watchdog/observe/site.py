"""Where in the user's own code something happens."""

import os
import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Any

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_FRAMEWORK = (f"{os.sep}torch{os.sep}", f"{os.sep}lightning{os.sep}", f"{os.sep}pytorch_lightning{os.sep}")


@lru_cache(maxsize=4096)
def _rank(file: str) -> int:
    """0 for the user's files, 1 for installed libraries, 2 for torch, Lightning, the standard library and ourselves."""
    if file.startswith((_OWN, "<frozen")):
        return 2
    if any(part in file for part in _INSTALLED):
        return 2 if any(part in file for part in _FRAMEWORK) else 1
    return 2 if file.startswith(_STDLIB) else 0


def user_line(depth: int = 1) -> str:
    """``file:line`` of the nearest frame of the user's, else of the nearest library that is not torch or Lightning.

    ``depth`` frames are left out, counted from the caller. Files under the working directory are given relative to it.
    """
    frame, library = sys._getframe(depth + 1), ""
    while frame is not None:
        file = frame.f_code.co_filename
        rank = _rank(file)
        if rank == 0:
            return _short(file, frame.f_lineno)
        if rank == 1 and not library:
            library = _short(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return library


def _instead(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


_CALL: CodeType = _instead.__code__


def caller_of(function: Any) -> FrameType | None:
    """The frame that called a Python function which is being run further up the stack; None where it is not."""
    code, frame = getattr(function, "__code__", None), sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_back if frame is not None else None


def on_behalf_of(frame: FrameType) -> Callable[..., Any]:
    """Calls a function from the line at which ``frame`` stands, so that its warnings name that line and not ours."""
    first = frame.f_lineno - 1  # the call stands in the second line
    code = _CALL.replace(co_filename=frame.f_code.co_filename, co_firstlineno=first)
    return FunctionType(code, frame.f_globals)


def call_plainly(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """From here."""
    return function(*args, **kwargs)


def origin(frame: FrameType) -> int:
    """0 for the user's code, 1 for an installed library, 2 for torch, Lightning, the standard library or ourselves."""
    return _rank(frame.f_code.co_filename)


def is_ours(frame: FrameType) -> bool:
    """Is this frame of the watchdog itself?"""
    return frame.f_code.co_filename.startswith(_OWN)


def is_users(code: CodeType) -> bool:
    """Is this code of the user's?"""
    return _rank(code.co_filename) == 0


def line_of(frame: FrameType, line: int) -> str:
    """``file:line`` as :func:`user_line` writes it."""
    return _short(frame.f_code.co_filename, line)


def line_of_code(code: CodeType) -> str:
    """``file:line`` at which a function begins."""
    return _short(code.co_filename, code.co_firstlineno)


def _short(file: str, line: int) -> str:
    try:
        here = os.getcwd() + os.sep
    except OSError:
        here = os.sep
    return f"{file.removeprefix(here)}:{line}"
