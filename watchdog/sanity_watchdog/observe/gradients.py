"""Gradients before the step, unscaled and not yet clipped: finite or not, how large, how they change with depth."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.gradients import BadGradients, DepthProfile, GradientSizes
from ..evidence.readings import Layers, Scalars
from ..evidence.scaler import ClippedNorms
from .culprits import Culprits
from .formats import live_scaler, scale_of
from .graph import risky_operations
from .holding import held_by
from .moment import Moment
from .names import named_all, parameter_owners
from .observer import Observer, in_samples, is_plain
from .run import Run
from .sampling import DENSE
from .scaler import inner, unscales_itself
from .sharding import sharding
from .strided import NORMED, measurable
from .tensors import Measuring, Statistics, part

EARLY = 4
"""First samples: the baseline of sizes, and the profile along the depth."""
OPENING = 0.1
"""Share of the octaves between the faintest gradient and the largest, and octaves at least, that it gains between two
samples while what is behind it has not left zero yet."""
SETTLED = 3
"""Samples since then whose slopes count."""
HISTORY = 8
"""Samples kept."""
SHOWN = 64
"""Parameters that one piece of evidence names at most."""
ADAPTIVE = ("betas", "alpha", "rho", "lr_decay", "beta2_decay")
"""Options of optimizers that divide by the gradient's size."""


@dataclass
class Past:
    """What is kept of one optimizer's gradients."""

    samples: int = 0
    early: list[float] = field(default_factory=list)
    largest: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    slopes: list[float] = field(default_factory=list)
    faintest: float = -math.inf
    norms: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    scales: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


def slope(values: list[float]) -> float:
    """Least-squares slope of equally spaced values."""
    middle, mean = (len(values) - 1) / 2, sum(values) / len(values)
    spread = sum((i - middle) ** 2 for i in range(len(values)))
    return sum((i - middle) * (v - mean) for i, v in enumerate(values)) / spread


class GradientWatch(Observer):
    """One pass over the gradients of each optimizer in sampled attempts."""

    codes = ("WD206", "WD211", "WD212", "WD213")
    _pending: BadGradients | None = None

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._sharded = run.world > 1 and bool(sharding(run.module, run.strategy))
        self._parameters = named_all(run.module)
        self._names = {id(p): name for name, p in self._parameters.items()}
        tables = (nn.Embedding, nn.EmbeddingBag)
        owners = parameter_owners(run.module)
        self._depth = frozenset(
            n for n, p in self._parameters.items() if p.dim() > 1 and not isinstance(owners.get(n), tables)
        )
        self._measuring, self._taken = Measuring(), 0
        self._past: dict[int, Past] = {}
        self._loss: Tensor | None = None
        self._stepped = False
        self._root: Any = None
        self._culprits: Culprits | None = None
        self._looked: tuple[int, int, tuple[str, ...]] = (-1, 0, ())

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._pending is not None:
            self._explain(at, self._pending, loss.grad_fn)
        if at.sampled and is_plain(loss):  # 0 where every loss since the last step is finite, NaN otherwise
            flag = 0 * loss.detach().sum()
            self._loss = flag if self._loss is None or self._stepped else self._loss + flag
            self._stepped = False
            self._root = loss.grad_fn if at.sync else None
            self._keep_culprits(at)

    def output(self, at: Moment, output: Any) -> None:
        if at.stage == "train":
            self._keep_culprits(at)

    def _keep_culprits(self, at: Moment) -> None:
        if at.sync and at.trace is not None and at.trace.followers is not None:
            self._culprits = at.trace.followers.culprits

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._stepped = True
        torch_optimizer = inner(optimizer)
        held = {self._names[id(p)]: p for p in held_by(torch_optimizer) if id(p) in self._names}
        gradients = {n: p.grad for n, p in held.items() if p.grad is not None}
        looked = at.attempt - 1, id(torch_optimizer), tuple(gradients)
        if not gradients or (at.attempt > DENSE and looked == self._looked):
            return
        self._looked = at.attempt, *looked[1:]
        found = self._measuring.take(part(gradients, self._taken), phase=7 * self._taken)
        self._taken += 1
        past = self._past.setdefault(id(torch_optimizer), Past())
        beside: dict[str, Tensor | None] = {"loss": self._loss}
        if live_scaler(self._run):
            beside["scale"] = scale_of(self._run, self._run.device)
        if past.samples < EARLY:
            beside["weight"] = _norm(held.values())
        known: dict[str, float] = {}
        for name, value in beside.items():
            if value is not None:
                at.ask({name: value}, partial(_note, known))
        still_scaled = unscales_itself(torch_optimizer) and live_scaler(self._run)
        adaptive = any(key in torch_optimizer.param_groups[0] for key in ADAPTIVE)
        found.ask(at, lambda rows: self._judge(at, rows, known, past, still_scaled, adaptive))

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        self._root = self._culprits = None

    def failed(self, at: Moment, error: BaseException) -> None:
        self.end(at)

    def end(self, at: Moment) -> None:
        if self._pending is not None:
            self._explain(at, self._pending, None)

    def _judge(
        self,
        at: Moment,
        rows: list[Statistics],
        known: Mapping[str, float],
        past: Past,
        still_scaled: bool,
        adaptive: bool,
    ) -> Iterable[Evidence]:
        scale = known.get("scale", 1.0)
        unit = scale if still_scaled else 1.0
        bad = [row for row in rows if not row.finite]
        past.samples += 1
        yield from self._layers(at, rows, unit)
        weight = known.get("weight", 1.0)
        loss = math.isfinite(known.get("loss", 0.0))
        seen = self._finiteness(at, rows, bad, loss, math.isfinite(weight), scale)
        if bad and not at.sync:
            self._pending = seen
        elif bad and self._root is not None:
            yield replace(
                seen,
                operations=risky_operations(self._root, id(self._parameters[seen.bad[0]])),
                culprit=self._culprits.first() if self._culprits is not None else None,
            )
        else:
            yield seen
        if bad:
            return
        norm = math.hypot(*(row.norm / unit for row in rows if math.isfinite(row.norm)))
        if not self._sharded:  # there each rank has a part; rank zero joins them
            yield Scalars(values={"gradient_norm": norm}, **at.tags())
        profile = self._profile(at, rows, past)
        if profile is not None:
            yield profile
        yield self._sizes(
            at, rows, past, unit, norm / weight if weight and "weight" in known else math.nan, adaptive, profile
        )
        if live_scaler(self._run):
            past.norms.append(norm)
            past.scales.append(scale)
            norms, scales = tuple(past.norms), tuple(past.scales)
            yield ClippedNorms(norms=norms, scales=scales, manual=not self._run.automatic, **at.tags())

    def _finiteness(
        self, at: Moment, rows: list[Statistics], bad: list[Statistics], loss: bool, weights: bool, scale: float
    ) -> BadGradients:
        names = [row.name for row in rows]
        first = names.index(bad[-1].name) if bad else -1
        return BadGradients(
            bad=tuple(row.name for row in reversed(bad))[:SHOWN],
            last_finite=names[first + 1] if bad and first + 1 < len(names) else "",
            measured=len(rows),
            infinite=any(math.isinf(row.largest) for row in bad),
            loss_finite=loss,
            weights_finite=weights,
            scale=scale,
            scaled=live_scaler(self._run),
            **at.tags(),
        )

    def _explain(self, at: Moment, seen: BadGradients, root: Any) -> None:
        self._pending = None
        parameter = self._parameters.get(seen.bad[0])
        operations = risky_operations(root, id(parameter)) if root is not None else ()
        at.emit(replace(seen, operations=operations))

    def _layers(self, at: Moment, rows: list[Statistics], unit: float) -> Iterable[Evidence]:
        names = tuple(row.name for row in rows)
        sizes = tuple(math.log2(row.largest / unit) if 0 < row.largest < math.inf else math.nan for row in rows)
        yield Layers(quantity="log2_largest_gradient", names=names, values=sizes, **at.tags())
        zeros = tuple(row.zero_share for row in rows)
        yield Layers(quantity="zero_gradient_share", names=names, values=zeros, **at.tags())

    def _sizes(
        self,
        at: Moment,
        rows: list[Statistics],
        past: Past,
        unit: float,
        ratio: float,
        adaptive: bool,
        profile: DepthProfile | None,
    ) -> GradientSizes:
        top = max(rows, key=lambda row: row.largest)
        past.largest.append(top.largest / unit)
        if len(past.early) < EARLY:
            past.early.append(top.largest / unit)
        return GradientSizes(
            largest=tuple(past.largest),
            start=sorted(past.early)[len(past.early) // 2],
            samples=past.samples,
            ratio=ratio,
            name=top.name,
            batch=at.batch,
            adaptive=adaptive,
            clipped=self._run.clip is not None,
            span=profile.span if profile is not None and len(profile.slopes) >= min(past.samples, SETTLED) else 0.0,
            layers=profile.layers if profile is not None else 0,
            **at.tags(),
        )

    def _profile(self, at: Moment, rows: list[Statistics], past: Past) -> DepthProfile | None:
        order = {name: i for i, name in enumerate(self._parameters)}
        some = sorted((r for r in rows if r.name in self._depth and 0 < r.rms < math.inf), key=lambda r: order[r.name])
        if len(past.slopes) >= EARLY or len(some) < 3:
            return None
        sizes = [math.log2(row.rms) for row in some]
        before, past.faintest = past.faintest, min(sizes)
        if past.faintest > before + max(1.0, OPENING * (max(sizes) - min(sizes))):
            past.slopes.clear()  # zero-initialised parts still open
        past.slopes.append(slope(sizes))
        return DepthProfile(
            slopes=tuple(past.slopes),
            layers=len(some),
            first=some[0].name,
            last=some[-1].name,
            smallest=min(sizes),
            largest=max(sizes),
            **at.tags(),
        )


def _note(known: dict[str, float], values: Mapping[str, Tensor]) -> None:
    known.update({name: float(value.sum()) for name, value in values.items()})


@torch.no_grad()
def _norm(parameters: Iterable[Tensor]) -> Tensor | None:
    """L2 norm of all parameters that torch can reduce together; of the first device and format."""
    values = [v for v in map(measurable, parameters) if isinstance(v, Tensor)]
    same = [v for v in values if v.dtype is values[0].dtype and v.device == values[0].device]
    if not same or same[0].dtype not in NORMED:
        return None
    wide = torch.float64 if same[0].dtype is torch.float64 else torch.float32
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(same, 2, wide)))
    return norm
