"""Every observer there is, in the order in which they look."""

from .half import HalfWatch
from .lost_updates import LostUpdateWatch
from .observer import Observer
from .parameters import ParameterObserver
from .runtime import Runtime
from .scaler import ScalerWatch

OBSERVERS: tuple[type[Observer], ...] = (
    Runtime,
    HalfWatch,
    ScalerWatch,
    LostUpdateWatch,
    ParameterObserver,
)
