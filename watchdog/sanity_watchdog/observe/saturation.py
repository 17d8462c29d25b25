"""How much of a bounded activation's output lies at its flat ends, in one step."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from ..evidence.base import Evidence
from ..evidence.readings import Unseen
from ..evidence.units import SaturatedUnits
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer, is_plain
from .run import Run
from .strided import sample

BOUNDED: dict[type[nn.Module], tuple[float, float]] = {
    nn.Tanh: (-1.0, 1.0),
    nn.Sigmoid: (0.0, 1.0),
    nn.Softsign: (-1.0, 1.0),
    nn.Hardtanh: (-1.0, 1.0),
    nn.Hardsigmoid: (0.0, 1.0),
}
"""Activations and the ends of their range. ReLU6 and the like clip on purpose and are left out."""
FLAT = 0.01
"""Distance from an end, as a share of the range, within which the slope is below 4 % of its largest."""
SEEN = 4096
"""Outputs sampled per module."""


class SaturationWatch(Observer):
    """Looks at the first training step; the last bounded activation may be the output and is left out."""

    codes = ("WD215",)

    def __init__(self) -> None:
        self._modules: dict[int, tuple[str, nn.Module]] = {}
        self._found: list[tuple[int, Tensor]] = []
        self._inside = Inside()

    def start(self, run: Run, at: Moment) -> None:
        modules = {id(m): (plain_name(n), m) for n, m in run.module.named_modules() if type(m) in BOUNDED}
        self._modules = dict(list(modules.items())[:-1])

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage != "train" or at.batch > 0 or not self._modules:
            return ()
        if anything_compiled(at.run.module):
            at.emit(Unseen(codes=self.codes, reason="compiled code", **at.tags()))
            return ()
        return (self._hooked(),)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        handle = register_module_forward_hook(self._inside.hook(self._look))
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def _look(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if id(module) in self._modules and isinstance(output, Tensor) and output.numel() and is_plain(output):
            low, high = BOUNDED[type(module)]
            edge = FLAT * (high - low)
            values = sample(output.detach(), SEEN)
            self._found.append((id(module), ((values > high - edge) | (values < low + edge)).float().mean()))

    def output(self, at: Moment, output: Any) -> None:
        self._inside.tell()
        found, self._found = self._found, []
        if found:
            shares = torch.stack([share for _, share in found])
            at.ask({"shares": shares}, lambda v: self._judge(at, [key for key, _ in found], v["shares"].tolist()))

    def _judge(self, at: Moment, keys: list[int], shares: list[float]) -> Iterable[Evidence]:
        worst: dict[int, float] = {}
        for key, share in zip(keys, shares, strict=True):
            worst[key] = max(worst.get(key, 0.0), share)
        layers = [(self._modules[key][0], type(self._modules[key][1]).__name__, share) for key, share in worst.items()]
        yield SaturatedUnits(layers=tuple(sorted(layers, key=lambda layer: -layer[2])), **at.tags())
