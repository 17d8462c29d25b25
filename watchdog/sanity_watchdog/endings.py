"""What an exception tells of how a run ended."""

import sys


def failure(error: BaseException) -> str:
    """Class of an exception that ended a run too early; empty for what ends it on purpose, as an interrupt does."""
    fails = error.code not in (None, 0) if isinstance(error, SystemExit) else isinstance(error, Exception)
    return type(error).__name__ if fails else ""


def in_flight() -> BaseException:
    """What ends this process; torch's ``spawn`` turns the user's exception into an exit. From Python 3.13 on it is gone
    by the time that we are told: a failed exit then, for the fit was not over."""
    error = sys.exc_info()[1] or SystemExit(1)
    return error.__context__ if isinstance(error, SystemExit) and error.__context__ is not None else error
