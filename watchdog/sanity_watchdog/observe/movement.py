"""Compares what an optimizer holds just before and just after it steps."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.movement import Movement, Pace, Still, Stride
from ..evidence.readings import Scalars, Unseen, Vital
from .moment import Moment
from .names import parameter_names, parameter_owners
from .observer import Observer
from .run import Run
from .tensors import Measuring

EARLY = 6
"""Samples kept of the first steps: attempts 0, 1, 2, 3, 5, 8."""
TABLES = (nn.Embedding, nn.EmbeddingBag)
HALF = (torch.float16, torch.bfloat16)


@dataclass
class Walk:
    """One optimizer, and what its sampled steps have shown.

    Attributes:
        names: names of the parameters it holds.
        strides: the first samples. steady: largest ratio, and number of samples, at no less than half the largest rate.
    """

    index: int
    optimizer: Optimizer
    names: dict[int, str]
    before: dict[str, Tensor] = field(default_factory=dict)
    pushed: dict[str, Tensor] = field(default_factory=dict)
    phase: int = 0
    early: list[Stride] = field(default_factory=list)
    top: Stride | None = None
    counted: int = 0
    fastest: float = 0.0

    def keep(self, stride: Stride) -> None:
        """Take one sample into account."""
        if len(self.early) < EARLY:
            self.early.append(stride)
        if stride.lr > 2 * self.fastest:
            self.top, self.counted = None, 0
        self.fastest = max(self.fastest, stride.lr)
        if not stride.lr < self.fastest / 2:
            self.counted += 1
            if self.top is None or stride.ratio > self.top.ratio:
                self.top = stride


class MovementObserver(Observer):
    """Takes the same sampled elements before and after a step: pooled update ratios, and what does not move."""

    codes = ("WD316", "WD317")

    def __init__(self) -> None:
        self._measuring = Measuring()
        self._run: Run | None = None
        self._walks: dict[int, Walk] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self._matrices: set[str] = set()
        self._from_zero: set[str] = set()
        self._looked: dict[str, int] = {}
        self._moving: set[str] = set()
        self._samples = 0

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        names, owners = parameter_names(run.module), parameter_owners(run.module)
        self._parameters = {names[id(p)]: p for p in run.module.parameters()}
        tables = {name for name, owner in owners.items() if isinstance(owner, TABLES)}
        self._matrices = {n for n, p in self._parameters.items() if p.ndim > 1 and n not in tables}
        for index, optimizer in enumerate(run.optimizers):
            held = {id(p): names[id(p)] for group in optimizer.param_groups for p in group["params"] if id(p) in names}
            self._walks[id(optimizer)] = Walk(index, optimizer, held)

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        walk = self._walks.get(id(optimizer))
        if walk is None:
            return
        walk.before, walk.pushed = {}, {}
        if not at.sampled:
            return
        self._samples += 1
        walk.phase = 5 * self._samples
        rates = _rates(optimizer, walk.names)
        chosen = {n: self._parameters[n] for n, lr in rates.items() if lr != 0 and self._parameters[n].requires_grad}
        chosen = {n: p for n, p in chosen.items() if p.grad is not None}
        walk.before = self._measuring.samples(chosen, phase=walk.phase)
        walk.pushed = self._measuring.samples({n: p.grad for n, p in chosen.items()}, phase=walk.phase)

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        walk = self._walks.get(id(optimizer))
        if walk is None or not walk.before:
            return
        chosen = {n: self._parameters[n] for n in walk.before if n in walk.pushed}
        after = self._measuring.samples(chosen, phase=walk.phase)
        attempt, lr = at.attempt, max((r for r in _rates(optimizer, walk.names).values()), default=math.nan)
        for names, table in _tables(walk.before, after, walk.pushed):

            def arrived(values: Mapping[str, Tensor], names: list[str] = names) -> Iterator[Evidence]:
                rows = dict(zip(names, values["moves"].tolist(), strict=True))
                stride = self._stride(attempt, lr, rows)
                walk.keep(stride)
                if math.isfinite(stride.ratio):
                    yield Scalars(**at.tags(), values={"update_ratio": stride.ratio})
                yield self._movement(at)

            at.ask({"moves": table}, arrived)
        walk.before, walk.pushed = {}, {}

    def end(self, at: Moment) -> None:
        run = self._run
        if run is None:
            return
        if not self._samples and run.optimizers:
            at.emit(Unseen(**at.tags(), codes=self.codes, reason="no step through Lightning's optimizers"))
        at.emit(Vital(**at.tags(), key="parameters", text=self._text(run)))

    def _stride(self, attempt: int, lr: float, rows: Mapping[str, list[float]]) -> Stride:
        """Pool the rows ``(update², weight², moved, pushed, seen)`` of one step."""
        update = weight = 0.0
        matrices = 0
        for name, (delta, size, moved, pushed, seen) in rows.items():
            if moved:
                self._moving.add(name)
            if pushed:
                self._looked[name] = self._looked.get(name, 0) + 1
            if name not in self._matrices:
                continue
            if self._looked.get(name, 0) <= 1 and size == 0:
                self._from_zero.add(name)
            if name not in self._from_zero and pushed:
                matrices += 1
                scale = self._parameters[name].numel() / max(seen, 1)
                update, weight = update + delta * scale, weight + size * scale
        return Stride(attempt, lr, math.sqrt(update / weight) if weight else math.nan, matrices)

    def _movement(self, at: Moment) -> Movement:
        still = [n for n in self._looked if n not in self._moving]
        looked = [self._parameters[n] for n in self._looked]
        return Movement(
            **at.tags(),
            paces=tuple(
                Pace(w.index, type(w.optimizer).__name__, _searches(w.optimizer), tuple(w.early), w.top, w.counted)
                for w in self._walks.values()
                if w.top is not None
            ),
            still=tuple(
                Still(n, self._parameters[n].numel(), self._parameters[n].ndim > 1, self._looked[n]) for n in still
            ),
            elements=sum(p.numel() for p in looked),
            half=any(p.dtype in HALF for p in looked),
        )

    def _text(self, run: Run) -> str:
        """How the parameters are doing, in the closing line."""
        every = self._parameters
        trainable = {n: p for n, p in every.items() if p.requires_grad}
        held = {n for w in self._walks.values() for n in w.names.values()} & trainable.keys()
        text = f"{sum(p.numel() for p in every.values()):,} parameters"
        if len(trainable) < len(every):
            text += f", {sum(p.numel() for p in trainable.values()):,} trainable"
        optimizer = "the optimizer" if len(run.optimizers) == 1 else "optimizers"
        text += (
            f", {'all' if len(held) == len(trainable) else f'{len(held)} of {len(trainable)} tensors'} in {optimizer}"
        )
        moving = self._moving & held
        if not held or not self._looked:
            return text
        return text + (
            ", all moving" if len(moving) == len(held) else f", {len(moving)} of {len(held)} tensors seen moving"
        )


def _rates(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, float]:
    """Learning rate per parameter; NaN where it is kept on a device."""
    rates: dict[str, float] = {}
    for group in optimizer.param_groups:
        lr = group.get("lr", math.nan)
        if isinstance(lr, Tensor):
            lr = float(lr) if lr.device.type == "cpu" else math.nan
        rates |= {names[id(p)]: float(lr) for p in group["params"] if id(p) in names}
    return rates


def _searches(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.LBFGS) or any("line_search_fn" in g for g in optimizer.param_groups)


@torch.no_grad()
def _tables(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
) -> Iterator[tuple[list[str], Tensor]]:
    """``(P, 5)`` sums per parameter: update², weight², moved, pushed by a finite gradient, seen; one per device."""
    devices: dict[torch.device, list[str]] = {}
    for name in after:
        devices.setdefault(after[name].device, []).append(name)
    for device, names in devices.items():
        old = torch.cat([before[n].float() for n in names])
        new = torch.cat([after[n].float() for n in names])
        pull = torch.cat([gradients[n].float() for n in names])
        delta = new - old
        each = torch.stack([delta.square(), old.square(), (delta != 0).float(), torch.ones_like(old)], 1)
        table = torch.zeros(len(names), 5, device=device)
        table[:, [0, 1, 2, 4]] = table.new_zeros(len(names), 4).index_add_(0, _rows(before, names, device), each)
        live = (pull.isfinite() & (pull != 0)).float()
        table[:, 3] = table.new_zeros(len(names)).index_add_(0, _rows(gradients, names, device), live)
        yield names, table


def _rows(samples: Mapping[str, Tensor], names: list[str], device: torch.device) -> Tensor:
    counts = torch.tensor([samples[n].numel() for n in names])
    return torch.repeat_interleave(torch.arange(len(names)), counts).to(device, non_blocking=True)
