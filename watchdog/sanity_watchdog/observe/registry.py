"""Every observer there is, in the order in which they look."""

from .observer import Observer
from .parameters import ParameterObserver
from .runtime import Runtime

OBSERVERS: tuple[type[Observer], ...] = (
    Runtime,
    ParameterObserver,
)
