"""Looks at learning rates: the plan of each schedule, and the rate of every optimizer step."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..evidence.readings import Unseen
from ..evidence.schedules import Followed, LearningRates, Rates, SchedulePlans, SchedulesFollowed
from .moment import Moment
from .observer import Observer, every_step
from .plans import Source, plan, source
from .row import Row
from .run import Run

TELLING = (3, 8)
"""Rates of 0 in a row that are told at once, sampled or not."""
NEGLIGIBLE = 1e-12
"""Share of the largest rate so far that counts as 0; a cosine to 0 comes that near for one step of a million."""
DECAYS = ("ExponentialLR", "StepLR", "MultiStepLR")
DECAYED = 1e-7
"""The same share for a schedule that decays by factors at every step: it gets there by no plan, and a step of that
size is the rounding of float32 weights."""
DIFFERENT = 8
"""Different rates that are kept."""


@dataclass
class _Comparison:
    """One schedule beside the rates that its optimizer steps with; ``others`` set these as well."""

    schedule: Any
    others: bool
    apart: int = 0
    moved: int = 0
    position: Any = None
    wanted: float = 0.0
    used: list[float] = field(default_factory=list)

    def compare(self, rates: list[float]) -> None:
        """The optimizer steps with these rates."""
        wanted = getattr(self.schedule, "_last_lr", None)
        if wanted == rates or not wanted or list(wanted) == rates or len(wanted) != len(rates):
            self._agrees()
            return
        if self.others and self.used[-1:] != rates[:1]:
            self._agrees()
        self.apart += 1
        self.wanted = float(wanted[0])
        # one that holds still leaves the rate to the others
        position = self.wanted if self.others else getattr(self.schedule, "last_epoch", None)
        self.moved += position != self.position
        self.position = position
        if (not self.used or self.used[-1] != rates[0]) and len(self.used) < DIFFERENT:
            self.used.append(rates[0])

    def _agrees(self) -> None:
        self.apart = self.moved = 0
        self.used.clear()


@dataclass
class _Track:
    """What one optimizer stepped with."""

    schedule: Any = None
    interval: str = ""
    negligible: float = NEGLIGIBLE
    patience: float = 1.0
    comparisons: list[_Comparison] = field(default_factory=list)
    rate: float = 0.0
    rates: list[float] = field(default_factory=list)
    steady: bool = False
    largest: float = 0.0
    zeros: int = 0
    attempts: int = 0

    def step(self, rates: list[float]) -> bool:
        """The optimizer steps with these rates; is that to be told at once?"""
        rate = self.rate = max(rates)
        self.rates = rates
        self.attempts += 1
        if rate > self.largest:
            self.largest = rate
        for one in self.comparisons:
            one.compare(rates)
        if not abs(rate) <= self.negligible * self.largest:
            self.zeros = 0
            self.steady = not self.comparisons
            return False
        self.steady = False
        self.zeros += 1
        return self.zeros in TELLING


class ScheduleObserver(Observer):
    """Reads plans before the first step and rates at each optimizer step; host numbers only."""

    codes = ("WD501", "WD502", "WD503")

    def __init__(self) -> None:
        self._tracks: dict[int, _Track] = {}
        self._order: list[_Track] = []
        self._by_hand: dict[Any, tuple[Any, Any]] = {}
        self._epochs = self._until = 0
        self._numbers = True
        self._telling = False

    def start(self, run: Run, at: Moment) -> None:
        self._order = [_Track() for _ in run.optimizers]
        self._tracks = {id(o): t for o, t in zip(run.optimizers, self._order, strict=True)}
        for i, track in enumerate(self._order):
            mine = [s for s in run.schedules if s.optimizer == i]
            if mine:
                track.schedule = mine[0].scheduler
                track.interval = mine[0].interval if run.automatic else "step"
                track.patience = mine[0].frequency if run.automatic else 1
                track.comparisons = [_Comparison(s.scheduler, len(mine) > 1) for s in mine]
                if run.automatic and track.interval == "step" and type(track.schedule).__name__ in DECAYS:
                    track.negligible = DECAYED
        if not run.automatic:
            self._by_hand = {s.scheduler: _place(s.scheduler) for s in run.schedules if _plain(s.scheduler)}
        if not run.automatic and run.schedules:
            at.emit(Unseen(codes=("WD502",), reason="schedules are advanced by hand", **at.tags()))
            return
        written = source(run.module) if run.schedules else Source()
        at.emit(SchedulePlans(plans=tuple(plan(run, s, written) for s in run.schedules), **at.tags()))

    @every_step
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        track = self._tracks.get(id(optimizer))
        if track is None:
            return
        rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
        for rate in rates:
            if type(rate) is not float:
                self._numbers = False
                if rate is None or (isinstance(rate, Tensor) and rate.device.type != "cpu"):
                    self._tracks.clear()
                    self._order.clear()
                    at.emit(Unseen(codes=("WD501", "WD503"), reason="learning rate is not on the host", **at.tags()))
                    return
                rates = [float(rate) for rate in rates]
                break
        if rates and (track.step(rates) or at.sampled):
            self._tell(at)

    def may_rest(self, at: Moment, row: Row) -> bool:
        row.tracks.update(self._tracks)
        return self._numbers

    def same_step(self, optimizer: Optimizer) -> bool:
        track = self._tracks.get(id(optimizer))
        if track is None:
            return True
        rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
        if any(type(rate) is not float for rate in rates):
            return False
        self._telling |= bool(rates) and track.step(rates)
        return not self._telling

    def rested(self, at: Moment, first: int, row: Row) -> None:
        if row.epochs:
            self._epochs, self._until = self._epochs + len(row.epochs), first + row.epochs[-1] - 1
        if self._telling:
            self._telling = False
            self._tell(at)

    def epoch_end(self, at: Moment) -> None:
        self._epochs, self._until = self._epochs + 1, at.batch

    def end(self, at: Moment) -> None:
        self._tell(at, ended=True)
        steps = max((t.attempts for t in self._order), default=0)
        idle = tuple(type(s).__name__ for s, begun in self._by_hand.items() if _place(s) == begun)
        if idle:
            epochs = self._epochs + (at.batch > self._until + 1)
            at.emit(SchedulesFollowed(schedules=(), idle=idle, epochs=epochs, steps=steps, **at.tags()))

    def _tell(self, at: Moment, ended: bool = False) -> None:
        seen = [(i, t) for i, t in enumerate(self._order) if t.attempts]
        if not seen:
            return
        rates = tuple(
            Rates(
                index=i,
                rate=t.rate,
                largest=t.largest,
                zeros=t.zeros,
                attempts=t.attempts,
                schedule="" if t.schedule is None else type(t.schedule).__name__,
                patience=t.patience,
                interval=t.interval,
            )
            for i, t in seen
        )
        at.emit(LearningRates(optimizers=rates, count=len(self._order), ended=ended, **at.tags()))
        followed = tuple(
            Followed(
                index=i,
                schedule=type(f.schedule).__name__,
                wanted=f.wanted,
                used=tuple(f.used),
                advances=f.moved,
                apart=f.apart,
                others=f.others,
            )
            for i, t in seen
            for f in t.comparisons
        )
        if followed:
            at.emit(SchedulesFollowed(schedules=followed, **at.tags()))


def _place(scheduler: Any) -> tuple[Any, Any]:
    """Where a schedule stands."""
    return getattr(scheduler, "last_epoch", None), getattr(scheduler, "_step_count", None)


def _plain(scheduler: Any) -> bool:
    """Is it one of torch's that is advanced step by step or epoch by epoch, whatever a metric says?"""
    return isinstance(scheduler, LRScheduler) and not isinstance(scheduler, ReduceLROnPlateau)
