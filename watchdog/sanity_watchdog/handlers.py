"""What signal handlers of the user's raise while our code runs: it is not ours, and is not to be caught."""

import signal
from types import CodeType
from typing import Any


def from_handler(error: BaseException) -> bool:
    """Did a Python handler of a signal, such as a time-out's, raise this?"""
    codes = _codes()
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _codes() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if not callable(handler):  # none, or one of the signal module's constants
            continue
        handler = getattr(handler, "func", handler)  # functools.partial
        code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
