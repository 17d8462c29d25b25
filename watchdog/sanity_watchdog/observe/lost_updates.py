"""What one optimizer step did to weights in half precision: the same elements before and after."""

from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.half_weights import LostUpdates
from .formats import HALF, native_bf16
from .moment import Moment
from .names import named_all
from .observer import Observer, in_samples
from .run import Run
from .scaler import inner
from .strided import measurable, sample

MOST = 128
"""Elements compared per parameter."""
HISTORY = 8
"""Samples kept."""
SHOWN = 64
"""Parameters that are named at most."""


class LostUpdateWatch(Observer):
    """Pools over all half-precision parameters: single ones, such as norm weights at 1, never move in healthy runs."""

    codes = ("WD204",)

    def start(self, run: Run, at: Moment) -> None:
        self._half = {n: p for n, p in named_all(run.module).items() if p.dtype in HALF}
        self._names = {id(p): n for n, p in self._half.items()}
        self._bf16 = native_bf16(run.device)
        self._shares: deque[float] = deque(maxlen=HISTORY)
        self._held: list[tuple[str, Tensor, Tensor]] = []
        self._taken = 0

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._held = []
        if self._half:
            self._hold(optimizer)

    @in_samples
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        held, self._held = self._held, []
        if held:
            self._compare(at, optimizer, held)

    @torch.no_grad()
    def _hold(self, optimizer: Optimizer) -> None:
        self._taken += 1
        for group in optimizer.param_groups:
            for p in group["params"]:
                name = self._names.get(id(p))
                values = measurable(p) if name and p.grad is not None else ""
                if name and isinstance(values, Tensor):
                    self._held.append((name, p, sample(values, MOST, 7 * self._taken).clone()))

    @torch.no_grad()
    def _compare(self, at: Moment, optimizer: Optimizer, held: list[tuple[str, Tensor, Tensor]]) -> None:
        rate = max((g["lr"] for g in optimizer.param_groups if isinstance(g.get("lr"), (int, float))), default=None)
        if rate == 0:
            return
        rows: list[Tensor] = []
        names, numels = [], []
        for name, p, before in held:
            values, gradient = measurable(p), measurable(p.grad)
            if isinstance(values, Tensor) and isinstance(gradient, Tensor) and gradient.stride() == values.stride():
                after = sample(values, MOST, 7 * self._taken)
                push = sample(gradient, MOST, 7 * self._taken).float().abs()
                pushed, stuck = push != 0, before == after
                row = torch.stack([pushed.sum(), (pushed & stuck).sum(), push.sum(), (push * stuck).sum()])
                rows.append(row.to(rows[0].device) if rows else row)
                names.append(name)
                numels.append(p.numel())
        if rows:
            adaptive = any("exp_avg" in state for state in inner(optimizer).state.values())
            table = torch.stack(rows).float()
            at.ask({"table": table}, lambda v: self._judge(at, names, numels, v["table"], adaptive, rate))

    def _judge(
        self, at: Moment, names: list[str], numels: list[int], table: Tensor, adaptive: bool, rate: float | None
    ) -> Iterable[Evidence]:
        """Adaptive and sign methods push every element about equally hard, plain SGD in proportion to the gradient."""
        lost = moved = 0.0
        each = []
        for name, numel, (pushed, stuck, mass, stuck_mass) in zip(names, numels, table.tolist(), strict=True):
            if pushed:
                weight = numel if adaptive else numel * mass / pushed
                share = stuck / pushed if adaptive else stuck_mass / mass
                lost, moved = lost + weight * share, moved + weight
                each.append((share, name))
        if moved:
            self._shares.append(lost / moved)
            yield LostUpdates(
                shares=tuple(self._shares),
                dtype=str(self._half[names[0]].dtype).removeprefix("torch."),
                parameters=tuple(n for share, n in sorted(each, key=lambda x: -x[0]) if share > 0)[:SHOWN],
                tensors=len(names),
                rate=float("nan") if rate is None else float(rate),
                native_bf16=self._bf16,
                **at.tags(),
            )
