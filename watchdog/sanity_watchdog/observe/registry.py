"""Every observer there is, in the order in which they look."""

from .data import Data
from .dropout import DropoutObserver
from .half import HalfWatch
from .loop import GraphObserver, LoopObserver
from .losses import LossCalls
from .lost_updates import LostUpdateWatch
from .membership import MembershipObserver
from .metrics import MetricObserver
from .modes import ModeObserver
from .observer import Observer
from .parameters import ParameterObserver
from .progress import Progress
from .runtime import Runtime
from .scaler import ScalerWatch
from .schedules import ScheduleObserver
from .stall import StallObserver
from .statistics import StatisticsObserver

OBSERVERS: tuple[type[Observer], ...] = (
    Runtime,
    LossCalls,
    Data,
    Progress,
    HalfWatch,
    ScalerWatch,
    LostUpdateWatch,
    MembershipObserver,
    ParameterObserver,
    ScheduleObserver,
    ModeObserver,
    DropoutObserver,
    StatisticsObserver,
    LoopObserver,
    MetricObserver,
    GraphObserver,
    StallObserver,
)
