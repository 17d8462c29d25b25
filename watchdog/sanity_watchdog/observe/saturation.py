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


Found = tuple[str, str, Tensor]
"""Path of a module or place of a call, what it is, and the share of its outputs at the flat ends."""


class SaturationWatch(Observer):
    """Looks at the first training step; the last module and the last line may make the output and are left out."""

    codes = ("WD215",)

    def __init__(self) -> None:
        self._modules: dict[int, str] = {}
        self._found: list[Found] = []
        self._made: list[Tensor] = []
        self._inside = Inside()

    def start(self, run: Run, at: Moment) -> None:
        modules = {id(m): plain_name(n) for n, m in run.module.named_modules() if type(m) in BOUNDED}
        kept = len(modules) - (not _goes_on(run.module, next(reversed(modules), 0)))
        self._modules = dict(list(modules.items())[:kept])

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage != "train" or at.batch > 0:
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

    def _look(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if type(module) in BOUNDED and isinstance(output, Tensor) and output.numel() and is_plain(output):
            self._made.append(output)
            if id(module) in self._modules:
                share = _flat(output, *BOUNDED[type(module)])
                self._found.append((self._modules[id(module)], type(module).__name__, share))

    def output(self, at: Moment, output: Any) -> None:
        self._inside.tell()
        found, made = self._found, {id(t) for t in self._made}
        if at.stage == "train" and at.batch == 0 and at.trace is not None and at.trace.followers is not None:
            calls = [(t, line) for t, line in at.trace.followers.squashed.seen if id(t) not in made and is_plain(t)]
            with torch._C.DisableTorchFunction():
                found += [(n, "tanh", _flat(t, -1.0, 1.0)) for t, n in calls if n != calls[-1][1] and t.numel()]
        self._found, self._made = [], []
        if found:
            shares = torch.stack([share for _, _, share in found])
            at.ask({"shares": shares}, lambda v: self._judge(at, found, v["shares"].tolist()))

    def _judge(self, at: Moment, found: list[Found], shares: list[float]) -> Iterable[Evidence]:
        worst: dict[tuple[str, str], float] = {}
        for (name, kind, _), share in zip(found, shares, strict=True):
            worst[name, kind] = max(worst.get((name, kind), 0.0), share)
        layers = [(name, kind, share) for (name, kind), share in worst.items()]
        yield SaturatedUnits(layers=tuple(sorted(layers, key=lambda layer: -layer[2])), **at.tags())


def _goes_on(model: nn.Module, last: int) -> bool:
    """Does this module stand in a sequence in which something with weights comes after it?"""
    rows = (list(m.children()) for m in model.modules() if isinstance(m, nn.Sequential))
    return any(
        id(part) == last and any(True for after in row[i + 1 :] for _ in after.parameters())
        for row in rows
        for i, part in enumerate(row)
    )


@torch.no_grad()
def _flat(output: Tensor, low: float, high: float) -> Tensor:
    edge, values = FLAT * (high - low), sample(output.detach(), SEEN)
    return ((values > high - edge) | (values < low + edge)).float().mean()
