"""Compares what an optimizer holds just before and just after it steps, and with what it held at the start."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.movement import Movement, Pace, Still, Stride
from ..evidence.readings import Layers, Scalars, Unseen, Vital
from .moment import Moment
from .names import parameter_names, parameter_owners
from .observer import Observer, in_samples
from .plans import horizon
from .run import Run
from .sampling import DENSE
from .tensors import Measuring

EARLY, LATEST = 6, 5
"""Samples kept of the first steps (attempts 0, 1, 2, 3, 5, 8) and of the last ones."""
KEPT, KEPT_EACH = 1 << 15, 64
"""Elements of the start that are kept, in all and per parameter: 128 KiB."""
FAINT = 1e-9
"""A gradient over the largest one, of any parameter so far, below which no update of it would show."""
LEAST = 2.0**-30
"""Smallest update ratio that is shown; float32 weights no longer change below 2^-24."""
TABLES = (nn.Embedding, nn.EmbeddingBag)
HALF = (torch.float16, torch.bfloat16)


@dataclass
class Walk:
    """One optimizer, and what its sampled steps have shown.

    Attributes:
        before: samples of its matrices taken just before the step that is under way. phase: where they begin.
        batch: batch of that step.
        last: attempt of the last sample. first: mean square of each matrix at its first sample.
        early: the first steps. top, counted: largest step, and number of steps, since the rate last more than doubled.
        fastest: largest rate. latest: the last few steps.
    """

    index: int
    optimizer: Optimizer
    before: dict[str, Tensor] = field(default_factory=dict)
    phase: int = 0
    batch: int = -1
    last: int = -1
    first: dict[str, float] = field(default_factory=dict)
    early: list[Stride] = field(default_factory=list)
    top: Stride | None = None
    counted: int = 0
    fastest: float = 0.0
    latest: deque[Stride] = field(default_factory=lambda: deque(maxlen=LATEST))

    def keep(self, stride: Stride) -> None:
        """Take one step into account."""
        if len(self.early) < EARLY:
            self.early.append(stride)
        self.latest.append(stride)
        if stride.lr > 2 * self.fastest:
            self.top, self.counted = None, 0
        self.fastest = max(self.fastest, stride.lr)
        self.counted += 1
        if self.top is None or stride.ratio > self.top.ratio:
            self.top = stride


class MovementObserver(Observer):
    """Takes the same sampled elements before and after a step: pooled update ratios, and what does not move."""

    codes = ("WD316", "WD317")

    def __init__(self) -> None:
        self._measuring, self._keeping = Measuring(), Measuring(KEPT, KEPT_EACH)
        self._run: Run | None = None
        self._walks: dict[int, Walk] = {}
        self._names: dict[int, str] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self._matrices: set[str] = set()
        self._from_zero: set[str] = set()
        self._kept: dict[str, Tensor] = {}
        self._pushed: set[str] = set()
        self._strongest: dict[torch.device, Tensor] = {}
        self._looked: dict[str, int] = {}
        self._moving: set[str] = set()
        self._samples = 0

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._names = parameter_names(run.module)
        self._parameters = {self._names[id(p)]: p for p in run.module.parameters()}
        tables = {name for name, owner in parameter_owners(run.module).items() if isinstance(owner, TABLES)}
        self._matrices = {n for n, p in self._parameters.items() if p.ndim > 1 and n not in tables}
        self._walks = {id(optimizer): Walk(index, optimizer) for index, optimizer in enumerate(run.optimizers)}
        self._kept = self._keeping.samples(self._parameters)
        self._from_zero = set(self._kept)
        for kept in _by_device(self._kept):
            live = _sums((_packed(self._kept, kept) != 0).float()[:, None], self._kept, kept)
            at.ask({"live": live}, lambda v, n=kept: self._from_zero.difference_update(_chosen(n, v)))  # type: ignore[misc]

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        walk = self._walks.get(id(optimizer))
        if walk is None or (walk.before and walk.batch == at.batch):  # a line search asks for gradients several times
            return
        walk.before, walk.batch = {}, at.batch
        if at.attempt > DENSE and walk.last == at.attempt - 1:
            return
        walk.last = at.attempt
        self._samples += 1
        walk.phase = 5 * self._samples
        chosen = {n: self._parameters[n] for n, lr in _rates(optimizer, self._names).items() if lr != 0}
        chosen = {n: p for n, p in chosen.items() if p.requires_grad and p.grad is not None}
        self._compare(at, chosen)
        matrices = {n: p for n, p in chosen.items() if n in self._matrices}
        walk.before = self._measuring.samples(matrices, phase=walk.phase)

    @in_samples
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        walk = self._walks.get(id(optimizer))
        if walk is None or not walk.before:
            return
        after = self._measuring.samples({n: self._parameters[n] for n in walk.before}, phase=walk.phase)
        attempt, lr = at.attempt, max(_rates(optimizer, self._names).values(), default=math.nan)
        for names in _by_device(after):
            old, delta = _packed(walk.before, names), _packed(after, names) - _packed(walk.before, names)
            sums = _sums(torch.stack([delta.square(), old.square(), torch.ones_like(old)], 1), walk.before, names)

            def arrived(values: Mapping[str, Tensor], names: list[str] = names) -> Iterator[Evidence]:
                rows = dict(zip(names, values["sums"].tolist(), strict=True))
                stride = self._stride(walk, attempt, lr, rows)
                walk.keep(stride)
                yield self._layers(at, rows)
                if math.isfinite(stride.ratio):
                    yield Scalars(**at.tags(), values={"update_ratio": stride.ratio})
                yield self._movement(at)

            at.ask({"sums": sums}, arrived)
        walk.before = {}

    def end(self, at: Moment) -> None:
        run = self._run
        if run is None:
            return
        if not self._samples and run.optimizers:
            at.emit(Unseen(**at.tags(), codes=self.codes, reason="no step through Lightning's optimizers"))
        self._compare(at, {n: p for n, p in self._parameters.items() if n in self._kept})
        at.ask(
            {},
            lambda _: [Vital(**at.tags(), key="parameters", text=self._text(run)), self._movement(at, ended=True)],
        )

    def _compare(self, at: Moment, chosen: Mapping[str, nn.Parameter]) -> None:
        """Ask which parameters differ from their start, and which have a gradient where that would show.

        What has moved is not looked at again.
        """
        chosen = {n: p for n, p in chosen.items() if n not in self._moving}
        now = self._keeping.samples({n: p for n, p in chosen.items() if n in self._kept})
        pulls = {n: chosen[n].grad for n in now}  # a sparse one has its elements elsewhere than its parameter
        gradients = self._keeping.samples({n: g for n, g in pulls.items() if g is not None and not g.is_sparse})
        for names in _by_device(now):
            moved = _sums((_packed(now, names) != _packed(self._kept, names)).float()[:, None], now, names)
            at.ask({"moved": moved}, lambda v, n=names: self._moving.update(_chosen(n, v)))  # type: ignore[misc]
        for names in _by_device(gradients):
            pull = _packed(gradients, names).abs().nan_to_num(0.0, 0.0, 0.0)
            largest = pull.amax().maximum(self._strongest.get(pull.device, pull[0]))
            self._strongest[pull.device] = largest
            pushed = _sums((pull > FAINT * largest).float()[:, None], gradients, names)

            def arrived(values: Mapping[str, Tensor], names: list[str] = names) -> None:
                for name in self._pushed.intersection(names):
                    self._looked[name] = self._looked.get(name, 0) + 1
                self._pushed.update(_chosen(names, values))

            at.ask({"pushed": pushed}, arrived)

    def _stride(self, walk: Walk, attempt: int, lr: float, rows: Mapping[str, list[float]]) -> Stride:
        """Pool the rows ``(update², weight², seen)`` of one step."""
        update = weight = first = 0.0
        judged = (self._pushed | self._moving) - self._from_zero
        used = [name for name, (_, size, _) in rows.items() if size > 0 and name in judged]
        for name in used:
            delta, size, seen = rows[name]
            scale = self._parameters[name].numel() / seen
            update, weight = update + delta * scale, weight + size * scale
            first += walk.first.setdefault(name, size / seen) * self._parameters[name].numel()
        if not weight:
            return Stride(attempt, lr, math.nan, 0)
        return Stride(attempt, lr, math.sqrt(update / weight), len(used), math.sqrt(weight / first))

    def _layers(self, at: Moment, rows: Mapping[str, list[float]]) -> Layers:
        """The update ratio of each matrix; NaN where it was not looked at or is zero."""
        names = tuple(n for n in self._parameters if n in self._matrices)
        ratios = (math.sqrt(rows[n][0] / rows[n][1]) if n in rows and rows[n][1] else math.nan for n in names)
        logs = tuple(math.log2(max(ratio, LEAST)) if math.isfinite(ratio) else math.nan for ratio in ratios)
        return Layers(**at.tags(), quantity="log2_update_ratio", names=names, values=logs)

    def _movement(self, at: Moment, ended: bool = False) -> Movement:
        looked, foreseen = {n: self._parameters[n] for n in self._looked}, _planned(at)
        idle = {n: p for n, p in looked.items() if n not in self._moving}
        return Movement(
            **at.tags(),
            paces=tuple(
                Pace(
                    w.index,
                    type(w.optimizer).__name__,
                    _searches(w.optimizer),
                    tuple(w.early),
                    w.top,
                    w.counted,
                    tuple(w.latest),
                    w.fastest,
                )
                for w in self._walks.values()
                if w.top is not None
            ),
            still=tuple(Still(n, p.numel(), p.ndim > 1, self._looked[n]) for n, p in idle.items()),
            elements=sum(p.numel() for p in looked.values()),
            half=any(p.dtype in HALF for p in looked.values()),
            planned=at.attempt if ended else foreseen,
            foreseen=foreseen,
        )

    def _text(self, run: Run) -> str:
        """How the parameters are doing, in the closing line."""
        every = self._parameters
        trainable = {n: p for n, p in every.items() if p.requires_grad}
        held = {n for optimizer in run.optimizers for n in _rates(optimizer, self._names)} & trainable.keys()
        text = f"{sum(p.numel() for p in every.values()):,} parameters"
        if len(trainable) < len(every):
            text += f", {sum(p.numel() for p in trainable.values()):,} trainable"
        share = "all" if len(held) == len(trainable) else f"{len(held)} of {len(trainable)} tensors"
        text += f", {share} in {'the optimizer' if len(run.optimizers) == 1 else 'optimizers'}"
        if not held or not self._samples:
            return text
        moving = len(self._moving & held)
        return text + (", all moving" if moving == len(held) else f", {moving} of {len(held)} tensors seen moving")


def _planned(at: Moment) -> float:
    """Attempts of the whole run, where each batch goes on to lead to as many as those so far did."""
    epochs, steps = horizon(at.run)
    if not math.isfinite(steps):
        return math.inf
    if at.run.automatic:
        return steps
    batches = epochs * at.run.batches_per_epoch
    by_batches = batches * at.attempt / at.batch if at.batch and math.isfinite(batches) else math.inf
    return min(by_batches, at.run.max_steps if at.run.max_steps >= 0 else math.inf)


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


def _by_device(samples: Mapping[str, Tensor]) -> list[list[str]]:
    """Names of samples, those of one device together."""
    devices: dict[torch.device, list[str]] = {}
    for name, values in samples.items():
        devices.setdefault(values.device, []).append(name)
    return list(devices.values())


def _packed(samples: Mapping[str, Tensor], names: list[str]) -> Tensor:
    return torch.cat([samples[n].detach().float() for n in names])


def _row_numbers(samples: Mapping[str, Tensor], names: list[str]) -> Tensor:
    """Which of ``names`` each element of their joined samples belongs to, ``(N,)``; waits for nothing."""
    device = samples[names[0]].device
    sizes = [samples[n].numel() for n in names]
    counts = torch.tensor(sizes).to(device, non_blocking=True)
    return torch.repeat_interleave(torch.arange(len(names), device=device), counts, output_size=sum(sizes))


def _sums(values: Tensor, samples: Mapping[str, Tensor], names: list[str]) -> Tensor:
    """``(P, K)`` sums over each parameter's rows of packed ``values``, shape ``(N, K)``."""
    return values.new_zeros(len(names), values.shape[1]).index_add_(0, _row_numbers(samples, names), values)


def _chosen(names: list[str], values: Mapping[str, Tensor]) -> set[str]:
    """Names whose number is not zero."""
    return {name for tensor in values.values() for name, (n,) in zip(names, tensor.tolist(), strict=True) if n}
