"""Units that never fire, told by their gradients: no hook, one mask per bias, over a window of samples."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.readings import Unseen
from ..evidence.units import SilentLayer, SilentUnits
from .formats import autocasts_to_half, has_dtype, live_scaler
from .graph import past_activations
from .holding import held_by, ids_held_by
from .moment import Moment
from .names import named_all
from .observer import Observer, in_samples, is_plain
from .run import Run

WINDOW = 6
"""Samples of a window; in one batch alone a third of all units may be silent without any being dead."""
FEWEST = 8
"""Units of a layer that is looked at."""
COLUMNS = 32
"""Weights of each unit that confirm its silence."""
HALF_SILENT = 0.5
"""Silent share of a layer from which its weights are looked at."""
LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.GroupNorm,
    nn.LayerNorm,
)
"""Layers that are followed by an activation, one bias element per unit."""


class UnitWatch(Observer):
    """A bias element without gradient is a unit that did not fire in the whole batch, exactly."""

    codes = ("WD214",)

    def start(self, run: Run, at: Moment) -> None:
        self._parameters = named_all(run.module)
        last = next((p for p in reversed(self._parameters.values()) if p.dim() > 1), None)
        self._head = last
        names = {id(p): name for name, p in self._parameters.items()}
        biases = {
            names[id(bias)]: (bias, weight)
            for layer in run.module.modules()
            if isinstance(layer, LAYERS)
            and (bias := behind(layer, "bias")) is not None
            and id(bias) in names
            and bias.dim() == 1
            and bias.numel() >= FEWEST
            and ((weight := behind(layer, "weight")) is None or weight is not last)  # the outputs have no activation
        }
        self._biases = {n: p for n, (p, _) in biases.items() if is_plain(p)}
        if biases and not self._biases:
            at.emit(Unseen(codes=self.codes, reason="sharded parameters are replaced during the step", **at.tags()))
        self._weights = {n: weight for n, (_, weight) in biases.items()}
        self._alive: dict[str, Tensor] = {}
        self._samples: dict[str, int] = {}
        self._suspects: frozenset[str] = frozenset()
        self._traced: frozenset[str] = frozenset()
        self._bare: set[str] = set()
        self._closing = False
        self._last: dict[str, Tensor] = {}
        half = autocasts_to_half(run) or has_dtype(run.module, torch.float16)
        if half and not live_scaler(run) and self._biases:  # zeros may be lost gradients
            self._biases = {}
            at.emit(Unseen(codes=self.codes, reason="float16 without a loss scaler", **at.tags()))

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        """Look whether an activation can have silenced the suspects."""
        asked = {id(self._biases[name]): name for name in self._suspects - self._traced}
        if asked:
            self._bare |= {asked[key] for key in past_activations(loss.grad_fn, asked)}
            self._last["loss"] = loss.detach().float().mean()

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._biases and not self._closing:
            self._look(at, optimizer)

    @torch.no_grad()
    def _look(self, at: Moment, optimizer: Optimizer) -> None:
        held = ids_held_by(optimizer)
        found = {
            n: p.grad
            for n, p in self._biases.items()
            if id(p) in held and p.grad is not None and p.grad.layout is torch.strided and is_plain(p.grad)
        }
        if not found:
            return
        if self._suspects & found.keys():
            self._traced |= self._suspects & found.keys()
            self._last["largest"] = _largest(p.grad for p in held_by(optimizer))
            if self._head is not None and is_plain(self._head):
                self._last["head"] = self._head.detach().abs().amax().float()
            sizes = _sizes(found.values())
            if sizes is not None:
                self._last["faintest"] = sizes.masked_fill(sizes == 0, torch.inf).amin()
        for name, gradient in found.items():
            mask = gradient != 0
            if name in self._suspects:
                mask |= self._by_weights(name, mask)
            known = self._alive.get(name)
            self._alive[name] = mask if known is None else known | mask
            self._samples[name] = self._samples.get(name, 0) + 1
        full = [name for name in found if self._samples[name] >= WINDOW]
        if full:
            self._close(at, [n for n in full if found[n].device == found[full[0]].device])

    def _by_weights(self, name: str, mask: Tensor) -> Tensor:
        """Units some of whose weights have a gradient: a bias may have none because it cancels."""
        weight = self._weights[name]
        gradient = weight.grad if weight is not None else None
        if gradient is None or not is_plain(gradient) or gradient.shape[0] != mask.shape[0]:
            return torch.zeros_like(mask)
        columns = gradient.reshape(gradient.shape[0], -1) if gradient.is_contiguous() else gradient.flatten(1)
        step = max(1, columns.shape[1] // COLUMNS)
        fired: Tensor = (columns[:, ::step] != 0).any(1)
        return fired

    def _close(self, at: Moment, names: list[str]) -> None:
        """Ask for the silent units of layers whose window is full; those of one device at a time."""
        self._closing = True  # no further sample before this window is judged
        silent = torch.stack([self._alive[name].logical_not().sum() for name in names])
        asked, self._last = {"silent": silent, **self._last}, {}
        at.ask(asked, lambda values: self._judge(at, names, values))

    def _judge(self, at: Moment, names: list[str], values: Mapping[str, Tensor]) -> Iterable[Evidence]:
        silent: list[int] = values["silent"].tolist()
        self._closing = False
        units = [self._alive[name].numel() for name in names]
        layers = [SilentLayer(name=n, silent=s, units=u) for n, s, u in zip(names, silent, units, strict=True) if s]
        suspects = {layer.name for layer in layers if layer.share >= HALF_SILENT}
        if suspects - self._suspects:  # one more sample, with their weights, decides
            self._suspects |= suspects
            return
        layers = [replace(layer, bare=layer.name in self._bare) for layer in layers]
        samples = max(self._samples[name] for name in names)
        for name in names:
            del self._alive[name], self._samples[name]
        self._suspects = self._suspects - set(names) | suspects
        layers.sort(key=lambda layer: -layer.share)
        largest, faintest = float(values.get("largest", math.nan)), float(values.get("faintest", math.nan))
        loss, head = float(values.get("loss", math.nan)), float(values.get("head", math.nan))
        made = partial(SilentUnits, largest=largest, faintest=faintest, loss=loss, head=head, waits=at.run.phased)
        yield made(layers=tuple(layers), samples=samples, measured=len(names), **at.tags())


def behind(layer: nn.Module, name: str) -> Tensor | None:
    """The parameter behind ``layer.weight`` or ``layer.bias``, whose own value a parametrization may compute anew, and
    change, each time it is looked at.
    """
    made: Any = layer._modules.get("parametrizations")
    several = list(made[name].parameters(recurse=False)) if made is not None and name in made else []
    return layer._parameters.get(name) if not several else max(several, key=lambda p: p.dim())


def _largest(gradients: Iterable[Tensor | None]) -> Tensor:
    """Largest magnitude of any, on the device; NaN where it cannot be told of all."""
    sizes = _sizes(g for g in gradients if g is not None)
    return torch.tensor(torch.nan) if sizes is None else sizes.amax()


def _sizes(gradients: Iterable[Tensor]) -> Tensor | None:
    """Largest magnitude of each, on the device; None where it cannot be told of all."""
    given = list(gradients)
    if not given or not all(is_plain(g) and g.layout is torch.strided and g.device == given[0].device for g in given):
        return None
    return torch.stack([g.abs().amax().float() for g in given if g.numel()])
