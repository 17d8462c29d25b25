"""Functions replaced while a watched step runs, each thread's for that thread alone, and given back by the last."""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Function = Callable[..., Any]
Key = tuple[Any, str]
"""What has the function, and its name there."""

_LOCK = threading.Lock()
_PLACES: dict[tuple[int, str], "_Place"] = {}


class _Place:
    """One function with the replacements of all threads; ``entry`` stands where it stood."""

    def __init__(self, home: Any, name: str) -> None:
        self.home, self.name = home, name
        self.real: Function = getattr(home, name)
        self.mine: dict[int, list[Function]] = {}

        @functools.wraps(self.real)
        def entry(*args: Any, **kwargs: Any) -> Any:
            mine = self.mine.get(threading.get_ident())
            return mine[-1](*args, **kwargs) if mine else self.real(*args, **kwargs)

        self.entry = entry
        setattr(home, name, entry)

    def enter(self, make: Callable[[Function], Function]) -> None:
        mine = self.mine.setdefault(threading.get_ident(), [])
        mine.append(make(mine[-1] if mine else self.real))

    def leave(self) -> bool:
        """Was this the last?"""
        thread = threading.get_ident()
        self.mine[thread].pop()
        if not self.mine[thread]:
            del self.mine[thread]
        if not self.mine and getattr(self.home, self.name) is self.entry:
            setattr(self.home, self.name, self.real)
        return not self.mine


@contextmanager
def replaced(functions: Mapping[Key, Callable[[Function], Function]]) -> Iterator[None]:
    """While this is entered, calls from the present thread go elsewhere.

    Args:
        functions: what makes a replacement from the real function, or from the replacement further out.
    """
    entered: list[tuple[int, str]] = []
    try:
        with _LOCK:
            for (home, name), make in functions.items():
                key = id(home), name
                if key not in _PLACES:
                    _PLACES[key] = _Place(home, name)
                _PLACES[key].enter(make)
                entered.append(key)
        yield
    finally:
        with _LOCK:
            for key in entered:
                if _PLACES[key].leave():
                    del _PLACES[key]
