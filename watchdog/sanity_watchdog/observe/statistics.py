"""Measures batches against the running statistics of normalisation layers, in a few steps."""

from collections.abc import Container, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..evidence.modes import Normalisation, RunningStatistics
from ..evidence.readings import Unseen
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer, in_samples, is_plain
from .onlooker import Onlooker
from .run import Run

FIRST = 8
"""Optimizer steps before the first look; with momentum 0.1 statistics have settled after 29."""
LOOKS = 6
"""Steps that are looked at in all."""
KEPT = 2
EVALUATIONS = 2
"""Validation batches before and after which the layers' counters are compared."""
STOOD = 3
"""Looks in a row at which weights had moved and statistics had not."""
MOSTLY = 0.5
"""Share of the initial statistics above which the layer's own are as good as unused, and judged as they are."""


class StatisticsObserver(Observer):
    """Mean and variance of what reaches each BatchNorm layer, pooled over the step's calls."""

    codes = ("WD508",)

    def __init__(self) -> None:
        self._layers: dict[int, tuple[str, _BatchNorm]] = {}
        self._mode: _NormMode | None = None
        self._samples: list[tuple[Normalisation, ...]] = []
        self._before: dict[str, list[float]] = {}
        self._stood: dict[str, int] = {}
        self._looks = self._validations = 0
        self._copies: list[tuple[str, _BatchNorm]] = []
        self._pending: list[Tensor] = []
        self._learning: set[int] = set()
        self._evaluations = 0
        self._updates: dict[int, int] = {}

    def start(self, run: Run, at: Moment) -> None:
        self._layers = _layers_of(run.module)
        if not self._layers:
            at.emit(Unseen(codes=("WD508",), reason="no BatchNorm with running statistics", **at.tags()))

    def end(self, at: Moment) -> None:
        self.batch(at, None)
        if self._layers:
            at.emit(Unseen(codes=("WD508",), reason="too few steps", **at.tags()))

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage == "validation" and self._evaluations < EVALUATIONS:
            self._evaluations += 1
            self._layers = self._layers or _layers_of(at.run.module)  # a sanity check comes before the start
            self._updates = {key: _updates(layer) for key, (_, layer) in self._layers.items()}
        due = at.stage == "train" and at.sampled and at.attempt >= FIRST and self._looks < LOOKS
        if not (due or at.stage == "validation") or not self._layers:
            return ()
        if anything_compiled(at.run.module):
            at.emit(Unseen(codes=("WD508",), reason="compiled step", **at.tags()))
            return ()
        self._looks += at.stage == "train"
        held = {
            id(p) for o in at.run.optimizers for group in o.param_groups for p in group["params"] if p.requires_grad
        }
        self._mode = _NormMode(set(self._layers), held)
        return (self._mode,)

    def validation_start(self, at: Moment) -> None:
        """Copies of the network that only validation calls are looked at each time."""
        if self._copies and self._validations < LOOKS:
            self._validations += 1
            self._pending.append(torch.stack([_sums(layer) for _, layer in self._copies]))

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        """Ask for what validations have left."""
        copies, tags, pending = self._copies, at.tags(), self._pending
        self._pending = []

        def then(values: Mapping[str, Tensor]) -> Iterable[RunningStatistics]:
            names = {name for name, _ in self._beside(copies)}
            rows = zip(copies, values["copies"].tolist(), strict=True)
            yield self._evidence({name: sums for (name, _), sums in rows if name in names}, tags)

        for sums in pending:
            at.ask({"copies": sums}, then)

    def output(self, at: Moment, output: Any) -> None:
        before, self._updates = self._updates, {}
        if before and at.stage == "validation" and at.run.module.training:
            taken = tuple(self._layers[key][0] for key, n in before.items() if _updates(self._layers[key][1]) > n)
            if taken:
                at.emit(RunningStatistics(samples=(), evaluated=taken, **at.tags()))
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.inside.tell()
        self._ask(at, mode)

    def _ask(self, at: Moment, mode: "_NormMode") -> None:
        known = [(*self._layers[key], calls) for key, calls in mode.calls.items()]
        about = [(name, sum(c.rows for c in calls), layer.momentum) for name, layer, calls in known]
        if at.stage == "validation":
            self._copies = mode.copies(self._layers)
        if not known:
            return
        self._learning |= {layer.num_features for _, layer, _ in known}
        copies = self._beside(mode.copies(self._layers))
        tags, names = at.tags(), [name for name, _ in copies]

        def then(values: Mapping[str, Tensor]) -> Iterable[RunningStatistics]:
            layers = tuple(
                Normalisation(name=name, shift=shift, spread=spread, rows=rows, momentum=momentum, updates=int(updates))
                for (name, rows, momentum), (shift, spread, updates) in zip(
                    about, values["table"].tolist(), strict=True
                )
            )
            self._samples = [*self._samples, layers][-KEPT:]
            sums = values["copies"].tolist() if names else ()
            return (self._evidence(dict(zip(names, sums, strict=True)), tags),)

        asked = {"table": torch.stack([_distance(layer, calls) for _, layer, calls in known])}
        if names:
            asked["copies"] = torch.stack([_sums(layer) for _, layer in copies])
        at.ask(asked, then)

    def _beside(self, copies: list[tuple[str, _BatchNorm]]) -> list[tuple[str, _BatchNorm]]:
        """Those beside a layer of the same width whose statistics learn."""
        return [(name, layer) for name, layer in copies if layer.num_features in self._learning]

    def _evidence(self, sums: Mapping[str, list[float]], tags: dict[str, Any]) -> RunningStatistics:
        forgotten = self._forgotten(sums) if sums else ()
        return RunningStatistics(samples=tuple(self._samples), forgotten=forgotten, **tags)

    def _forgotten(self, now: Mapping[str, list[float]]) -> tuple[str, ...]:
        """Layers whose weights have moved from look to look while their statistics stood still; given sums of each."""
        for name, sums in now.items():
            before = self._before.get(name, sums)
            moved, still = before[:2] != sums[:2], before[2:] == sums[2:]
            self._stood[name] = self._stood.get(name, 0) + 1 if moved and still else 0
        self._before = dict(now)
        return tuple(name for name in now if self._stood[name] >= STOOD)


def _layers_of(module: nn.Module) -> dict[int, tuple[str, _BatchNorm]]:
    found: dict[int, tuple[str, _BatchNorm]] = {}
    for name, m in module.named_modules():
        if isinstance(m, _BatchNorm) and m.running_mean is not None and is_plain(m.running_mean):
            found[id(m.running_mean)] = plain_name(name), m
    return found


def _updates(layer: _BatchNorm) -> int:
    """How often its counter of batches was written to: reads no value."""
    counter = layer.num_batches_tracked
    return 0 if counter is None or counter.is_inference() else counter._version


@torch.no_grad()
def _sums(layer: _BatchNorm) -> Tensor:
    """Of weights, biases, running means and running variances."""
    several = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
    return torch.stack([t.float().sum() for t in several if t is not None])


@dataclass
class _Call:
    """One call of ``batch_norm``, each tensor one value per channel."""

    mean: Tensor
    variance: Tensor
    running_mean: Tensor
    running_variance: Tensor
    rows: int


@torch.no_grad()
def _distance(layer: _BatchNorm, calls: list[_Call]) -> Tensor:
    """Shift, spread and updates ``(3,)`` of a layer, pooled over its calls.

    Running variances are those within calls: a discriminator that normalises real and generated data apart is healthy.
    What is left of the initial 0 and 1 is taken out, as Adam does with its moments: 0.9^56 is a lot beside the variance
    of quiet inputs.
    """
    total = sum(c.rows for c in calls)
    weights = [c.rows / total for c in calls]
    mean = torch.stack([c.mean * w for c, w in zip(calls, weights, strict=True)]).sum(0)
    within = torch.stack([c.variance * w for c, w in zip(calls, weights, strict=True)]).sum(0) + layer.eps
    between = torch.stack([(c.mean - mean) ** 2 * w for c, w in zip(calls, weights, strict=True)]).sum(0)
    updates = layer.num_batches_tracked
    seen = torch.zeros_like(mean[0]) if updates is None else updates.to(mean.dtype).reshape(())
    left = (1 - layer.momentum) ** (seen - len(calls)) if layer.momentum else torch.zeros_like(seen)
    left = left.where((left > 0) & (left < MOSTLY), 0.0)
    shift = (mean - calls[0].running_mean / (1 - left)).abs() / (within + between).sqrt()
    spread = (((calls[0].running_variance - left) / (1 - left)).clamp(min=0) + layer.eps) / within
    return torch.stack([shift.median(), spread.median(), seen])


class _NormMode(Onlooker):
    """Notes what reaches ``batch_norm`` in training mode, and in eval mode whose weights no optimizer moves."""

    def __init__(self, known: Container[int], held: Container[int]) -> None:
        super().__init__()
        self._known, self._held = known, held
        self.calls: dict[int, list[_Call]] = {}
        self._fixed: set[int] = set()
        self.inside = Inside()

    def copies(self, layers: Mapping[int, tuple[str, _BatchNorm]]) -> list[tuple[str, _BatchNorm]]:
        """Layers of no optimizer that were called in eval mode."""
        return [layers[key] for key in sorted(self._fixed, key=list(layers).index)]

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is F.batch_norm:
            self.inside.do(partial(self._note, *args, **kwargs))
        return self.call(func, args, kwargs)

    @torch.no_grad()
    def _note(
        self,
        values: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        *_: Any,
        **__: Any,
    ) -> None:
        if running_mean is None or running_var is None or id(running_mean) not in self._known:
            return
        if not training and weight is not None and bias is not None and id(weight) not in self._held:
            self._fixed.add(id(running_mean))
        if not training:
            return
        x = values.detach()
        if x.numel() // max(x.shape[1], 1) < 2:
            return
        variance, mean = torch.var_mean(x.float(), [d for d in range(x.dim()) if d != 1])
        call = _Call(mean, variance, running_mean.float().clone(), running_var.float().clone(), len(x))
        self.calls.setdefault(id(running_mean), []).append(call)
