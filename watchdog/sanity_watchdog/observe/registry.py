"""Every observer there is, in the order in which they look."""

from .data import Data
from .dropout import DropoutObserver
from .flow import FlowWatch
from .gradients import GradientWatch
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
from .saturation import SaturationWatch
from .scaler import ScalerWatch
from .schedules import ScheduleObserver
from .stall import StallObserver
from .statistics import StatisticsObserver
from .units import UnitWatch

OBSERVERS: tuple[type[Observer], ...] = (
    Runtime,
    LossCalls,
    Data,
    Progress,
    HalfWatch,
    ScalerWatch,
    LostUpdateWatch,
    FlowWatch,
    GradientWatch,
    UnitWatch,
    SaturationWatch,
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
