"""Records the operators of the first training step and the first validation batch, for the targets meant."""

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..evidence.portability import DependentShapes, HostReads, PrecisionOnTargets, WideTensors
from ..evidence.readings import Unseen
from ..evidence.runtime import LooseAttributes, LoosePlacement
from ..portability.judging import judged
from ..portability.precision import row
from ..portability.targets import ASYNCHRONOUS, NO_FLOAT64, STATIC, judged_torch
from .batches import elements
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer, in_samples
from .placement import Loose, loose_tensors
from .recorder import DIFFERS_IN_BACKWARD, WIDE, Recorder
from .run import Run
from .scene import named
from .strangers import Following

RECORDED = ("WD405", "WD406", "WD407", "WD411")
"""Checks that see nothing but recorded operators."""
NEEDS = (
    ("WD405", NO_FLOAT64, "every target has float64"),
    ("WD409", STATIC, "no target compiles for shapes"),
    ("WD411", ASYNCHRONOUS, "no target runs ahead of the host"),
)
"""Checks that concern some targets only."""


def aims(run: Run) -> tuple[str, ...]:
    """The accelerators to judge for: the targets, and the present one; never the CPU."""
    return tuple(dict.fromkeys(t for t in (*run.targets, run.accelerator) if t != "cpu"))


class OperatorWatch(Observer):
    """Records one training step and one validation batch at most, and nothing at all without an accelerator in view."""

    codes = ("WD403", "WD404", "WD405", "WD406", "WD407", "WD408", "WD409", "WD411")

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._following: Following | None = None
        self._done: set[str] = set()
        self._loose: list[tuple[str, weakref.ref[Tensor]]] | None = None

    def start(self, run: Run, at: Moment) -> None:
        others = [t for t in run.targets if t not in ("cpu", run.accelerator)]
        if others:
            rows = [row(t, run.asked or run.precision, judged_torch()) for t in others]
            # a precision plugin of the user's own is applied on every target
            told = tuple(r for r in rows if run.asked or r.outcome != "ignored")
            at.emit(PrecisionOnTargets(rows=told, **at.tags()))
        targets = set(aims(run))
        self._list_loose(run)
        if not targets:
            self._tell_attributes(at)
            at.emit(Unseen(codes=(*RECORDED, "WD408", "WD409"), reason="no target given", **at.tags()))
        for code, kind, reason in NEEDS if targets else ():
            if not targets & set(kind):
                at.emit(Unseen(codes=(code,), reason=reason, **at.tags()))

    def validation_batch(self, at: Moment, batch: Any) -> None:
        self._list_loose(at.run)

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage in self._done or not aims(at.run):
            return ()
        self._done.add(at.stage)
        if anything_compiled(at.run.module):
            at.emit(Unseen(codes=RECORDED, reason="compiled step", **at.tags()))
            self._tell_attributes(at)
            return ()
        self._recorder = Recorder(at.run.module)
        scopes: list[AbstractContextManager[Any]] = [self._recorder.recording()]
        if at.run.accelerator == "cpu":
            self._following = Following(self._kept(), self._recorder)
            scopes.insert(0, self._following)
        return scopes

    def around_backward(self, at: Moment) -> Iterable[AbstractContextManager[Any]]:
        recorder = self._recorder
        if recorder is None:
            return ()
        if recorder.saw(DIFFERS_IN_BACKWARD):
            return (recorder.paused(),)
        return () if recorder.active else (recorder.recording(),)

    def output(self, at: Moment, output: Any) -> None:
        if at.stage == "validation":
            self._tell(at)

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if at.run.automatic:
            self._tell(at)

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        self._tell(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        self._tell(at)

    def _tell(self, at: Moment) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        following, self._following = self._following, None
        targets, calls = aims(at.run), recorder.calls
        at.emit(judged(calls, targets, at.tags()))
        if narrow := tuple(t for t in targets if t in NO_FLOAT64):
            wide = tuple(c for c in calls if c.wide and c.phase == "forward")
            at.emit(WideTensors(targets=narrow, held=_held(at), calls=wide, **at.tags()))
        if static := tuple(t for t in targets if t in STATIC):
            shaped = tuple(c for c in calls if c.depends == "shape")
            at.emit(DependentShapes(targets=static, calls=shaped, **at.tags()))
        if waiting := tuple(t for t in targets if t in ASYNCHRONOUS and at.stage == "train"):
            read = tuple(c for c in calls if c.depends == "value" and c.phase == "forward")
            at.emit(HostReads(targets=waiting, calls=read, **at.tags()))
        self._tell_attributes(at, following)
        for part in (recorder, following):
            if part is not None:
                part.inside.tell()

    def _list_loose(self, run: Run) -> None:
        """What is there before the first step; what hooks make later, on the model's device, is no stranger."""
        if self._loose is None:
            self._loose = [(t.name, weakref.ref(t.tensor)) for t in loose_tensors(run.module)]

    def _kept(self) -> list[Loose]:
        return [Loose(name, tensor) for name, ref in self._loose or () if (tensor := ref()) is not None]

    def _tell_attributes(self, at: Moment, following: Following | None = None) -> None:
        run = at.run
        root = run.device.type
        kept = [t for t in self._kept() if t.tensor.ndim and (root == "cpu" or t.tensor.device.type != root)]
        met = tuple(following.met) if following is not None else ()
        at.emit(
            LooseAttributes(
                accelerator=run.accelerator,
                targets=aims(run) if root == "cpu" else (),
                kept=tuple(named(t.name, t.tensor) for t in kept),
                met=tuple(s for s in met if s.attribute),
                followed=following is not None,
                **at.tags(),
            )
        )
        if following is not None:
            strangers = tuple(s for s in met if not s.attribute)
            at.emit(LoosePlacement(targets=aims(run), strangers=strangers, **at.tags()))


def _held(at: Moment) -> tuple[str, ...]:
    wide = [e.path for e in elements(at.data) if e.tensor.dtype in WIDE]
    if at.stage == "train":
        registered = (*at.run.module.named_parameters(), *at.run.module.named_buffers())
        wide += [plain_name(name) for name, tensor in registered if tensor.dtype in WIDE]
    return tuple(wide)
