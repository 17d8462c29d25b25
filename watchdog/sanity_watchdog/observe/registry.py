"""Every observer there is, in the order in which they look."""

from .across import AcrossWatch
from .clipping import ClippingWatch
from .compilations import CompilationWatch
from .data import Data
from .dependence import DependenceWatch
from .dividing import DividingWatch
from .dropout import DropoutObserver
from .errors import ErrorsWatch
from .flow import FlowWatch
from .gradients import GradientWatch
from .half import HalfWatch
from .hyperparameters import HyperparameterObserver
from .keeper import BatchKeeper
from .lengths import LengthsWatch
from .likeness import LikenessWatch
from .loop import GraphObserver, LoopObserver
from .losses import LossCalls
from .lost_updates import LostUpdateWatch
from .made_targets import MadeTargetsObserver
from .membership import MembershipObserver
from .metrics import MetricObserver
from .modes import ModeObserver
from .movement import MovementObserver
from .observer import Observer
from .operators import OperatorWatch
from .optimizer_state import StateObserver
from .own_seeds import OwnSeedWatch
from .parameters import ParameterObserver
from .penalties import PenaltyWatch
from .player_targets import PlayerTargetsObserver
from .progress import Progress
from .pulling import PullingObserver
from .ranks import Ranks
from .reseeding import ReseedingWatch, SeededLoadingWatch
from .rewriting import RewritingWatch
from .rivals import RivalsWatch
from .runtime import Runtime
from .saturation import SaturationWatch
from .scaled_clips import ScaledClipWatch
from .scaler import ScalerWatch
from .schedules import ScheduleObserver
from .shapes import ShapeWatch
from .stall import StallObserver
from .statistics import StatisticsObserver
from .undone import UndoneObserver
from .units import UnitWatch
from .wasted import WastedWatch
from .weighting import WeightingWatch

OBSERVERS: tuple[type[Observer], ...] = (
    Runtime,
    OperatorWatch,
    ShapeWatch,
    CompilationWatch,
    LossCalls,
    DividingWatch,
    ErrorsWatch,
    Data,
    Progress,
    MadeTargetsObserver,
    PlayerTargetsObserver,
    LengthsWatch,
    RivalsWatch,
    PenaltyWatch,
    WeightingWatch,
    LikenessWatch,
    PullingObserver,
    ReseedingWatch,
    SeededLoadingWatch,
    OwnSeedWatch,
    RewritingWatch,
    DependenceWatch,
    AcrossWatch,
    HalfWatch,
    ScalerWatch,
    LostUpdateWatch,
    FlowWatch,
    WastedWatch,
    GradientWatch,
    ClippingWatch,
    ScaledClipWatch,
    UnitWatch,
    SaturationWatch,
    HyperparameterObserver,
    MembershipObserver,
    ParameterObserver,
    MovementObserver,
    UndoneObserver,
    ScheduleObserver,
    ModeObserver,
    DropoutObserver,
    StatisticsObserver,
    LoopObserver,
    StateObserver,
    MetricObserver,
    GraphObserver,
    StallObserver,
    BatchKeeper,
    Ranks,
)
