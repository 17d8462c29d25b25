"""The loss scaler without a single read between samples: skipped steps are steps that do not happen."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.readings import Scalars
from ..evidence.scaler import ScalerHistory, ScalerSetup, TinyConstant
from .formats import HALF, autocasts_to_half, live_scaler, scale_of
from .holding import ids_held_by
from .moment import Moment
from .names import named_trainable, parameter_names
from .observer import Observer, every_step
from .run import Run

WINDOW = 32
"""Latest attempts whose skips are counted."""
SETTLING = 8
"""First attempts that are not counted: the scaler looks for its scale (2^24 takes seven skips)."""
FEWEST = 12
"""Attempts in the window before skips are reported between samples."""


def inner(optimizer: Optimizer) -> Optimizer:
    """The torch optimizer inside Lightning's wrapper."""
    wrapped = getattr(optimizer, "optimizer", optimizer)
    return wrapped if isinstance(wrapped, Optimizer) else optimizer


def unscales_itself(optimizer: Optimizer) -> bool:
    """Does this (fused) optimizer unscale inside ``step`` and decide there whether to skip?"""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


class ScalerWatch(Observer):
    """Counts attempts against real steps, and reads the scale with each sample."""

    codes = ("WD203", "WD205", "WD207")

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._active: bool | None = None
        self._attempts = self._skipped = 0
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._open = False
        self._scales: list[float] = []
        self._constant = True
        self._ahead_at_first: dict[int, int] = {}
        self._fused: dict[int, tuple[int, float]] = {}
        for evidence in (*self._constants(run, at), self._setup(run, at)):
            at.emit(evidence)

    def looks_between(self, run: Run, moment: str) -> bool:
        return run.scaler is not None

    @every_step
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._active is None:
            self._active = live_scaler(self._run)
        if not self._active:
            return
        self._close()
        if self._recent and self._recent[-1] and len(self._window()) >= FEWEST:
            at.emit(self._history(at))
        self._attempts += 1
        self._open = not unscales_itself(inner(optimizer))
        if at.sampled:
            self._ask(at, inner(optimizer))

    @every_step
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._open:
            self._open = False
            self._recent.append(False)

    def end(self, at: Moment) -> None:
        if self._active:
            self._close()
            at.emit(self._history(at))

    def _close(self) -> None:
        """The attempt before this one, if it was not followed by a step, was skipped."""
        if self._open:
            self._open = False
            self._skipped += 1
            self._recent.append(True)

    def _window(self) -> list[bool]:
        late = max(self._attempts - SETTLING, 0)
        return list(self._recent)[-late:] if late else []

    def _ask(self, at: Moment, optimizer: Optimizer) -> None:
        asked = {"scale": scale_of(self._run, self._run.device)}
        steps = next(
            (s["step"] for s in optimizer.state.values() if isinstance(s, dict) and isinstance(s.get("step"), Tensor)),
            None,
        )
        if unscales_itself(optimizer) and steps is not None and steps.device == asked["scale"].device:
            asked["steps"] = steps
        attempts, key = self._attempts, id(optimizer)
        at.ask(asked, lambda values: self._read(at, values, attempts, key))

    def _read(self, at: Moment, values: Any, attempts: int, optimizer: int) -> Iterable[Evidence]:
        scale = float(values["scale"])
        self._constant &= not self._scales or self._scales[-1] == scale
        self._scales = [*self._scales[:1], scale]
        if "steps" in values:
            self._count_fused(optimizer, attempts, float(values["steps"]))
        yield Scalars(values={"loss_scale": scale}, **at.tags())
        yield self._history(at)

    def _count_fused(self, optimizer: int, attempts: int, steps: float) -> None:
        """``steps`` a fused optimizer really took before attempt ``attempts`` (of all optimizers)."""
        before = self._fused.get(optimizer)
        self._fused[optimizer] = attempts, steps
        if before is not None and len(self._run.optimizers) == 1:
            tried, real = attempts - before[0], round(steps - before[1])
            skipped = max(tried - real, 0)
            self._skipped += skipped
            self._recent.extend([True] * min(skipped, WINDOW) + [False] * min(max(tried - skipped, 0), WINDOW))

    def _history(self, at: Moment) -> ScalerHistory:
        window = self._window()
        interval = getattr(self._run.scaler, "get_growth_interval", None)
        return ScalerHistory(
            attempts=self._attempts,
            skipped=self._skipped,
            window=len(window),
            window_skipped=sum(window),
            start_scale=self._scales[0] if self._scales else 0.0,
            scale=self._scales[-1] if self._scales else 0.0,
            constant=self._constant and bool(self._scales),
            growth_interval=int(interval()) if callable(interval) else 2000,
            schedules_ahead=self._ahead(),
            **at.tags(),
        )

    def _ahead(self) -> int:
        """How many steps the schedules have gained on the optimizers since the scaler settled."""
        if self._attempts < SETTLING or len(self._run.optimizers) != 1:
            return 0
        gained = []
        for i, schedule in enumerate(self._run.schedules):
            count = getattr(schedule.scheduler, "_step_count", None)
            if schedule.interval == "step" and schedule.frequency == 1 and isinstance(count, int):
                ahead = count - (self._attempts - self._skipped)
                gained.append(ahead - self._ahead_at_first.setdefault(i, ahead))
        return max(gained, default=0)

    def _setup(self, run: Run, at: Moment) -> ScalerSetup:
        trainable = named_trainable(run.module)
        held = ids_held_by(*run.optimizers)
        return ScalerSetup(
            autocast_half=autocasts_to_half(run),
            half_weights=tuple(n for n, p in trainable.items() if p.dtype is torch.float16 and id(p) in held),
            trainable=len(trainable),
            scaler="none" if run.scaler is None else "live" if live_scaler(run) else "disabled",
            **at.tags(),
        )

    def _constants(self, run: Run, at: Moment) -> Iterable[TinyConstant]:
        names = parameter_names(run.module)
        for optimizer in run.optimizers:
            for group in optimizer.param_groups:
                eps = group.get("eps")
                if not isinstance(eps, (int, float)) or group.get("fused"):  # fused kernels add it in float32
                    continue
                for dtype in HALF:
                    some = [names.get(id(p), "?") for p in group["params"] if p.dtype is dtype and p.requires_grad]
                    if some:
                        yield TinyConstant(
                            optimizer=type(optimizer).__name__,
                            name="eps",
                            value=float(eps),
                            dtype=str(dtype).removeprefix("torch."),
                            smallest=torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps,
                            parameters=tuple(some),
                            **at.tags(),
                        )
