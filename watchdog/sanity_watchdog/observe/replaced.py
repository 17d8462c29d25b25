"""Functions replaced while a watched step runs, each thread's for that thread alone, and given back by the last."""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

Function = Callable[..., Any]
Key = tuple[Any, str]
"""What has the function, and its name there."""

_LOCK = threading.Lock()
_PLACES: dict[tuple[int, str], "_Place"] = {}


class _Place:
    """One function with the replacements of all threads; ``entry`` stands where it stood while there is any."""

    def __init__(self, home: Any, name: str, real: Function) -> None:
        self.home, self.name, self.real = home, name, real
        self.mine: dict[int, list[Function]] = {}

        @functools.wraps(real)
        def entry(*args: Any, **kwargs: Any) -> Any:
            mine = self.mine.get(threading.get_ident())
            return mine[-1](*args, **kwargs) if mine else real(*args, **kwargs)

        self.entry = entry

    def enter(self, thread: int, make: Callable[[Function], Function]) -> None:
        if not self.mine:
            setattr(self.home, self.name, self.entry)
        mine = self.mine.setdefault(thread, [])
        mine.append(make(mine[-1] if mine else self.real))

    def leave(self, thread: int) -> None:
        self.mine[thread].pop()
        if not self.mine[thread]:
            del self.mine[thread]
        if not self.mine and getattr(self.home, self.name) is self.entry:
            setattr(self.home, self.name, self.real)


def _place(home: Any, name: str) -> _Place:
    """The place of a function; kept for later where its home stays as well."""
    place, real = _PLACES.get((id(home), name)), getattr(home, name)
    if place is None or (not place.mine and place.real is not real):
        place = _PLACES[id(home), name] = _Place(home, name, real)
    return place


@contextmanager
def replaced(functions: Mapping[Key, Callable[[Function], Function]]) -> Iterator[None]:
    """While this is entered, calls from the present thread go elsewhere.

    Args:
        functions: what makes a replacement from the real function, or from the replacement further out.
    """
    thread, entered = threading.get_ident(), list[_Place]()
    try:
        with _LOCK:
            for (home, name), make in functions.items():
                place = _place(home, name)
                place.enter(thread, make)
                entered.append(place)
        yield
    finally:
        with _LOCK:
            for place in entered:
                place.leave(thread)
                if not place.mine and not isinstance(place.home, ModuleType):
                    del _PLACES[id(place.home), place.name]
