"""Units that never fire, told by their gradients: no hook, one mask per bias, over a window of samples."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.readings import Unseen
from ..evidence.units import SilentLayer, SilentUnits
from .formats import autocasts_to_half, has_dtype, live_scaler
from .moment import Moment
from .names import named_all, parameter_owners
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
        owners = parameter_owners(run.module)
        biases = {
            name: (p, owners[name])
            for name, p in self._parameters.items()
            if isinstance(owners.get(name), LAYERS) and p is getattr(owners[name], "bias", None) and p.dim() == 1
        }
        last = next((name for name, p in reversed(self._parameters.items()) if p.dim() > 1), "")
        head = owners.get(last)  # the outputs have no activation behind them
        self._biases = {
            n: p for n, (p, owner) in biases.items() if p.numel() >= FEWEST and owner is not head and is_plain(p)
        }
        self._owners = {n: owner for n, (_, owner) in biases.items()}
        self._alive: dict[str, Tensor] = {}
        self._samples = 0
        self._suspects: frozenset[str] = frozenset()
        self._closing = False
        half = autocasts_to_half(run) or has_dtype(run.module, torch.float16)
        if half and not live_scaler(run) and self._biases:  # zeros may be lost gradients
            self._biases = {}
            at.emit(Unseen(codes=self.codes, reason="float16 without a loss scaler", **at.tags()))

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._biases and not self._closing:
            self._look(at, optimizer)

    @torch.no_grad()
    def _look(self, at: Moment, optimizer: Optimizer) -> None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        found = {
            n: p.grad
            for n, p in self._biases.items()
            if id(p) in held and p.grad is not None and p.grad.layout is torch.strided and is_plain(p.grad)
        }
        if not found:
            return
        for name, gradient in found.items():
            mask = gradient != 0
            if name in self._suspects:
                mask |= self._by_weights(name, mask)
            known = self._alive.get(name)
            self._alive[name] = mask if known is None else known | mask
        self._samples += 1
        if self._samples >= WINDOW:
            self._close(at)

    def _by_weights(self, name: str, mask: Tensor) -> Tensor:
        """Units some of whose weights have a gradient: a bias may have none because it cancels."""
        weight = getattr(self._owners[name], "weight", None)
        gradient = getattr(weight, "grad", None)
        if gradient is None or not is_plain(gradient) or gradient.shape[0] != mask.shape[0]:
            return torch.zeros_like(mask)
        columns = gradient.reshape(gradient.shape[0], -1) if gradient.is_contiguous() else gradient.flatten(1)
        step = max(1, columns.shape[1] // COLUMNS)
        fired: Tensor = (columns[:, ::step] != 0).any(1)
        return fired

    def _close(self, at: Moment) -> None:
        self._closing = True  # no further sample before this window is judged
        alive, samples = self._alive, self._samples
        names, units = list(alive), [mask.numel() for mask in alive.values()]
        silent = torch.stack([mask.logical_not().sum() for mask in alive.values()])
        confirmed = self._suspects
        at.ask({"silent": silent}, lambda v: self._judge(at, names, v["silent"].tolist(), units, samples, confirmed))

    def _judge(
        self, at: Moment, names: list[str], silent: list[int], units: list[int], samples: int, confirmed: frozenset[str]
    ) -> Iterable[Evidence]:
        layers = [SilentLayer(name=n, silent=s, units=u) for n, s, u in zip(names, silent, units, strict=True) if s]
        layers.sort(key=lambda layer: -layer.share)
        self._suspects = frozenset(layer.name for layer in layers if layer.share >= HALF_SILENT)
        self._closing = False
        if self._suspects - confirmed:  # one more sample, with their weights, decides
            self._samples = samples
            return
        self._alive, self._samples = {}, 0
        yield SilentUnits(layers=tuple(layers), samples=samples, measured=len(names), **at.tags())
