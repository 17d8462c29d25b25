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


@lru_cache(maxsize=4096)
def _standing_in(code: CodeType, line: int) -> CodeType:
    first = line - 1  # the call stands in the second line
    return _CALL.replace(co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=first)


def on_behalf_of(
    frame: FrameType | None, levels: int, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What to call, and with what, to call ``function`` from the line at which ``frame`` stands.

    Its warnings then name that line and not ours. ``levels``: how many frames there are to stand in for, counted
    outwards; a warning may name one further out.
    """
    for _ in range(levels):
        if frame is None:
            break
        call = FunctionType(_standing_in(frame.f_code, frame.f_lineno), frame.f_globals)
        function, args, kwargs, frame = call, (function, args, kwargs), {}, frame.f_back
    return function, args, kwargs


def stands_in(frame: FrameType) -> bool:
    """Is this frame there on behalf of another one?"""
    return frame.f_code.co_code == _CALL.co_code


def origin(frame: FrameType) -> int:
    """0 for the user's code, 1 for an installed library, 2 for torch, Lightning, the standard library or ourselves."""
    return _rank(frame.f_code.co_filename)


def is_ours(frame: FrameType) -> bool:
    """Is this frame of the watchdog itself?"""
    return frame.f_code.co_filename.startswith(_OWN) or stands_in(frame)


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
