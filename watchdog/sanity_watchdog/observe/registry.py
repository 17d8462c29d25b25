"""Every observer there is, in the order in which they look."""

from .observer import Observer

OBSERVERS: tuple[type[Observer], ...] = ()
