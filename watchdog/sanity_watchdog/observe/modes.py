"""Looks at the modes in which modules train."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.modes import Resting, TrainingModes
from .holding import ids_held_by
from .moment import Moment
from .names import plain_name
from .observer import Observer, in_samples, is_plain
from .run import Run

WATCHED = 64
"""Outermost modules whose mode is followed, to know when one flips."""


def depends_on_mode(module: nn.Module) -> bool:
    """Does training mode change what ``module`` itself computes, in a way that is not switched off on purpose?"""
    if isinstance(module, _DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, _NormBase):
        weight = module._parameters.get("weight")
        frozen = weight is not None and not weight.requires_grad
        return bool(module.track_running_stats) and not frozen
    if isinstance(module, nn.RNNBase):
        return bool(module.dropout > 0 and module.num_layers > 1)
    if isinstance(module, nn.MultiheadAttention):
        return bool(module.dropout > 0)
    if type(module).__module__.startswith("torch."):
        return False
    return "training" in getattr(getattr(type(module).forward, "__code__", None), "co_names", ())


class ModeObserver(Observer):
    """Modes before the forward pass and at the optimizer's step, of the modules that the optimizer trains."""

    codes = ("WD504",)

    def __init__(self) -> None:
        self._names: list[str] = []
        self._modules: list[nn.Module] = []
        self._parents: list[int] = []
        self._outer: list[nn.Module] = []
        self._outer_modes: list[bool] = []
        self._trained: set[int] = set()
        self._before: list[bool] = []
        self._since: int | None = None
        self._targets = False
        self._fresh: set[str] | None = None

    def start(self, run: Run, at: Moment) -> None:
        index = {}
        for name, module in run.module.named_modules():
            index[name] = len(self._names)
            self._names.append(plain_name(name))
            self._modules.append(module)
            self._parents.append(index.get(name.rpartition(".")[0], 0) if name else -1)
        by_depth = sorted(zip(self._names, self._modules, strict=True), key=lambda one: one[0].count("."))
        self._outer = [m for _, m in itertools.islice(by_depth, WATCHED)]
        self._outer_modes = [m.training for m in self._outer]

    def batch(self, at: Moment, batch: object) -> None:
        modes = [m.training for m in self._outer]
        if modes != self._outer_modes:
            fallen = any(before and not now for before, now in zip(self._outer_modes, modes, strict=True))
            self._since = at.step if fallen else None
            self._outer_modes = modes
        if at.sampled:
            self._before = [m.training for m in self._modules]
            self._trained.update(i for i, training in enumerate(self._before) if training)

    def output(self, at: Moment, output: Any) -> None:
        if at.sync and at.stage == "train" and at.trace is not None:
            calls = (c for c in at.trace.calls if getattr(c.input, "requires_grad", False))
            self._targets |= any(getattr(c.target, "requires_grad", False) for c in calls)

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        resting = {i for i, m in enumerate(self._modules) if not (m.training or self._before[i])}
        if not resting:
            at.emit(TrainingModes(resting=(), modules=len(self._modules), **at.tags()))
            return
        held = ids_held_by(optimizer)
        learning = self._learning(held)
        outermost = (i for i in sorted(resting & learning) if self._parents[i] not in resting)
        found = tuple(self._describe(i) for i in outermost)
        since = (at.step if self._since is None else self._since) if any(r.flipped for r in found) else None
        seen = TrainingModes(
            resting=tuple(r for r in found if r.layers or not r.alone),
            modules=len(learning),
            since=since,
            targets=self._targets,
            **at.tags(),
        )
        self._ask_whether_used(at, seen)

    def _ask_whether_used(self, at: Moment, seen: TrainingModes) -> None:
        """Have the layers that rest alone ever seen a batch, or loaded anything?"""
        first = self._fresh is None
        names = [r.name for r in seen.resting if r.alone and (first or r.name in (self._fresh or ()))]
        modules = dict(zip(self._names, self._modules, strict=True))
        asked = {name: modules[name] for name in names[:WATCHED] if _has_statistics(modules[name])}
        if not asked:
            self._fresh = set()
            at.emit(seen)
            return
        with torch.no_grad():
            changes = {name: _changes(layer, first) for name, layer in asked.items()}

        def read(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            fresh = self._fresh = {name for name in asked if not float(values[name])}
            yield replace(seen, resting=tuple(replace(r, fresh=r.name in fresh) for r in seen.resting))

        at.ask(changes, read)

    def _learning(self, held: set[int]) -> set[int]:
        """Modules with parameters, their own or deeper ones, that have a gradient and are in the optimizer."""
        learning: set[int] = set()
        for i, module in enumerate(self._modules):
            if any(p is not None and id(p) in held and p.grad is not None for p in module._parameters.values()):
                while i >= 0 and i not in learning:
                    learning.add(i)
                    i = self._parents[i]
        return learning

    def _describe(self, i: int) -> Resting:
        top, name = self._modules[i], self._names[i]
        layers = [
            f"{plain_name(f'{name}.{inner}' if name and inner else name or inner)} ({type(m).__name__})"
            for inner, m in top.named_modules()
            if not m.training and depends_on_mode(m)
        ]
        return Resting(
            name=name,
            kind=type(top).__name__,
            layers=tuple(layers),
            alone=bool(name) and not top._modules,
            flipped=i in self._trained,
            override=next((type(m).__name__ for m in self._around(i) if _has_own_train(m)), ""),
        )

    def _around(self, i: int) -> Iterator[nn.Module]:
        """This module and those that it is in, outwards."""
        while i >= 0:
            yield self._modules[i]
            i = self._parents[i]


def _has_statistics(layer: nn.Module) -> bool:
    running = [getattr(layer, name, None) for name in ("running_mean", "running_var")]
    return isinstance(layer, _NormBase) and all(isinstance(t, Tensor) and is_plain(t) and t.numel() for t in running)


def _changes(layer: Any, start: bool) -> Tensor:
    """How far its statistics are from their initial values; at the ``start`` also its bias and its varying weight."""
    found = [layer.running_mean.abs().amax(), (layer.running_var - 1).abs().amax()]
    if start:
        found += [layer.bias.abs().amax()] if is_plain(layer.bias) else []
        found += [layer.weight.amax() - layer.weight.amin()] if is_plain(layer.weight) else []
    return torch.stack([one.float() for one in found]).amax()


def _has_own_train(module: nn.Module) -> bool:
    """Is its ``train`` the user's?"""
    method = next((vars(kind)["train"] for kind in type(module).__mro__ if "train" in vars(kind)), None)
    return not str(getattr(method, "__module__", "torch")).startswith(("torch.", "lightning.", "pytorch_lightning."))
