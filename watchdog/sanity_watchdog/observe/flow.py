"""Whether gradients are cleared between steps, and whether what backward computed reaches the update."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.gradients import Discarded, Uncleared
from .formats import live_scaler
from .holding import held_by
from .moment import Moment
from .names import parameter_names
from .observer import Observer, in_samples
from .run import Run
from .scaler import inner, unscales_itself
from .strided import measurable, sample

MOST = 8
"""Parameters of each optimizer that are looked at."""
PER_TENSOR = 256
"""Elements of each that are looked at."""
SAMPLES = 10
"""Samples per run: these faults are there from the start."""
FIRST = 32
"""Attempts at which the mere presence of gradients is checked without a sample."""
GONE = 1e-6
"""Share of the gradient's norm below which the rest is nothing."""
RESIDUE = 0.3
"""Share of a movement that is not along the weights; weight decay alone has none but rounding."""


@dataclass
class Flow:
    """One optimizer between two of its steps.

    Attributes:
        clean: was there a backward before which no gradient was left?
        old: norms of what was left before each backward.
        places: where what was left before the last backward lies in memory.
        filled: norm after the last backward.
        used: parameters that had a gradient then.
        reached: did the last backward leave it with gradients?
    """

    number: int
    kind: str
    parameters: list[Tensor]
    steps: int = 0
    clean: bool = False
    old: list[Tensor] = field(default_factory=list)
    places: frozenset[int] = frozenset()
    filled: Tensor | None = None
    used: list[Tensor] = field(default_factory=list)
    present: bool = False
    reached: bool = False
    before: tuple[list[Tensor], Tensor, Tensor] | None = None
    uncleared: int = 0
    intervals: int = 0
    absent: int = 0
    zeroed: int = 0
    cut: int = 0
    kept: float = float("nan")
    names: tuple[str, ...] = ()

    def renew(self) -> None:
        """A step was attempted."""
        self.steps += 1
        self.forget()

    def forget(self) -> None:
        """What was seen since the last step no longer counts."""
        self.clean = self.present = False
        self.old, self.filled, self.used = [], None, []


class FlowWatch(Observer):
    """Follows the gradients of each optimizer from one of its steps to the next."""

    codes = ("WD216", "WD217")

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._names = parameter_names(run.module)
        self._flows = {id(o): Flow(i, type(o).__name__, list(held_by(o))) for i, o in enumerate(run.optimizers)}
        self._seen = self._samples = 0
        self._last_attempt = self._last_batch = self._backward = -1
        self._looking = self._idle = False

    def batch(self, at: Moment, batch: object) -> None:
        if at.batch != self._last_batch + 1:  # what happened in between was not seen
            for flow in self._flows.values():
                flow.forget()
        self._last_batch = at.batch
        self._looking = at.sampled and self._samples < SAMPLES
        self._samples += self._looking and at.attempt != self._last_attempt
        self._last_attempt = at.attempt

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._looking:
            for flow in self._flows.values():
                left = with_gradient(flow.parameters)
                if left:
                    flow.old.append(norm_of([p.grad for p in left]))
                    flow.places = places_of(left)
                else:
                    flow.clean = True

    def after_backward(self, at: Moment) -> None:
        self._backward = at.batch
        if not self._looking and self._seen >= FIRST:
            return
        for flow in self._flows.values():
            used = with_gradient(flow.parameters)
            flow.present |= bool(used)
            flow.reached = bool(used)
            if used and self._looking:
                flow.used, flow.filled = used, norm_of([p.grad for p in used])

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._seen += 1
        if not self._looking and self._seen > FIRST and self._idle:
            return
        self._idle = not self._looking
        flow = self._flows.get(id(inner(optimizer)))
        if flow is None:
            return
        flow.before = None
        if self._looking or self._seen <= FIRST:
            gone = flow.present and not with_gradient(flow.parameters, 1)
            flow.absent = flow.absent + 1 if gone else 0
            if gone or self._looking:
                at.emit(self._discarded(at, flow))
        if self._looking and with_gradient(flow.parameters, 1):
            self._ask(at, flow, optimizer)
        flow.renew()

    @in_samples
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._looking:
            self._compare(at, optimizer)

    @torch.no_grad()
    def _compare(self, at: Moment, optimizer: Optimizer) -> None:
        flow = self._flows.get(id(inner(optimizer)))
        if flow is None or flow.before is None:
            return
        (held, norm, old), flow.before = flow.before, None
        after = norm_of([p.grad for p in held]).to(norm.device)
        tensors = {"before": norm, "after": after, "beside": beside(old, packed(held))}
        at.ask(tensors, lambda values: self._cut(at, flow, values))

    @torch.no_grad()
    def _ask(self, at: Moment, flow: Flow, optimizer: Optimizer) -> None:
        now = with_gradient(flow.parameters)
        norm = norm_of([p.grad for p in now])
        if not (unscales_itself(inner(optimizer)) and live_scaler(self._run)):
            flow.before = (now, norm, packed(now))
        asked = {"now": norm_of([p.grad for p in flow.used]) if flow.used else norm}
        if flow.filled is not None and flow.filled.device == norm.device:
            asked["filled"] = flow.filled
        replaced = not flow.places & places_of(now)  # a gradient that was put there, not added to
        if flow.steps and flow.old and not flow.clean and not replaced:
            asked["old"] = torch.stack(flow.old)
        names = tuple(self._names.get(id(p), "?") for p in now)
        at.ask(asked, lambda values: self._judge(at, flow, values, names))

    def _judge(
        self, at: Moment, flow: Flow, values: Mapping[str, Tensor], names: tuple[str, ...]
    ) -> Iterable[Evidence]:
        left = values.get("old")
        flow.uncleared += left is not None and bool((left != 0).all())
        flow.intervals += 1
        yield Uncleared(
            optimizer=flow.number,
            kind=flow.kind,
            steps=flow.uncleared,
            of=flow.intervals,
            parameters=names,
            **at.tags(),
        )
        zero = "filled" in values and bool(values["now"] == 0) and bool(values["filled"] != 0)
        flow.zeroed = flow.zeroed + 1 if zero else 0
        flow.names = names
        yield self._discarded(at, flow)

    def _cut(self, at: Moment, flow: Flow, values: Mapping[str, Tensor]) -> Iterable[Evidence]:
        before, after, residue = (float(values[name]) for name in ("before", "after", "beside"))
        lost = before > 0 and after < GONE * before and (after > 0 or residue < RESIDUE)
        flow.cut = flow.cut + 1 if lost else 0
        flow.kept = after / before if before else float("nan")
        yield self._discarded(at, flow)

    def _discarded(self, at: Moment, flow: Flow) -> Discarded:
        return Discarded(
            optimizer=flow.number,
            kind=flow.kind,
            absent=flow.absent,
            early=self._backward != at.batch,
            elsewhere=not flow.reached and any(f.reached for f in self._flows.values()),
            zeroed=flow.zeroed,
            cut=flow.cut,
            kept=flow.kept,
            clipped=self._run.clip is not None,
            parameters=flow.names,
            **at.tags(),
        )


def with_gradient(parameters: Sequence[Tensor], most: int = MOST) -> list[Tensor]:
    """The first parameters that have a gradient."""
    found: list[Tensor] = []
    for p in parameters:
        if p.grad is not None:
            found.append(p)
            if len(found) == most:
                break
    return found


def places_of(parameters: Iterable[Tensor]) -> frozenset[int]:
    """Where the gradients lie in memory; backward adds to them in place. Others than dense ones count as one place."""
    grads = (p.grad for p in parameters)
    return frozenset(
        g.data_ptr() if type(g) is Tensor and g.layout is torch.strided else 0 for g in grads if g is not None
    )


def packed(tensors: Iterable[Tensor | None]) -> Tensor:
    """Copies of the same sampled elements of all measurable ones of the first one's device, in float32."""
    values = [v for v in map(measurable, tensors) if isinstance(v, Tensor)]
    same = [sample(v, PER_TENSOR).float() for v in values if v.device == values[0].device]
    return torch.cat(same) if same else torch.zeros(1, dtype=torch.float32)


@torch.no_grad()
def norm_of(gradients: Iterable[Tensor | None]) -> Tensor:
    """L2 norm of a sample, always the same elements; 0 where nothing can be measured."""
    norm: Tensor = torch.linalg.vector_norm(packed(gradients))
    return norm


def beside(before: Tensor, after: Tensor) -> Tensor:
    """Share of a movement that is not along the weights, so that it is not weight decay; 0 without movement."""
    moved = after - before
    along = (moved @ before) / (before @ before).clamp_min(1e-30)
    return torch.nan_to_num((moved - along * before).norm() / moved.norm(), nan=0.0)
