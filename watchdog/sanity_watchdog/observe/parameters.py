"""Watches what parameters hold, from before the first step to the end of the run."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.parameters import Parameters, State, Trace
from .holding import held_by
from .hyperparameters import decay_of
from .moment import Moment
from .names import parameter_owners, plain_name
from .observer import Observer, in_samples
from .run import Run
from .sampling import DENSE
from .sharding import local
from .strided import measurable
from .structure import equal_rows, has_mask, is_pruned, stacked, switches
from .tensors import Measuring, Statistics, part

SETTLED = 5
"""Attempts after which units that are equal count as staying equal."""
FROZEN_EVERY = 4
"""Samples between two looks at parameters that no optimizer holds."""
TABLES = (nn.Embedding, nn.EmbeddingBag)


@dataclass
class Reading:
    """What one sample found, as it arrives on the host: per parameter, by name."""

    attempt: int
    rows: list[Statistics] = field(default_factory=list)
    equal: dict[str, bool] = field(default_factory=dict)
    no_gradient: dict[str, bool] = field(default_factory=dict)

    def states(self) -> Iterator[tuple[str, State, int]]:
        """Name, state and size of the sample of each parameter."""
        for row in self.rows:
            yield row.name, State(self.attempt, row.largest, row.norm, row.zero_share, row.smallest), row.seen


class ParameterObserver(Observer):
    """Measures each optimizer's parameters just before it steps, so that a sample sees what the forward pass used."""

    codes = ("WD301", "WD302", "WD303", "WD304", "WD319")

    def __init__(self) -> None:
        self._measuring = Measuring()
        self._parameters: dict[str, nn.Parameter] = {}
        self._holder: dict[str, int] = {}
        self._optimizers: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._traces: dict[str, Trace] = {}
        self._module: nn.Module | None = None
        self._alike: set[str] = set()
        self._owners: dict[str, nn.Module] = {}
        self._pruned: set[str] = set()
        self._samples = 0
        self._decay = 0.0

    def start(self, run: Run, at: Moment) -> None:
        self._parameters = {plain_name(n): p for n, p in run.module.named_parameters()}
        self._optimizers = {id(o): i for i, o in enumerate(run.optimizers)}
        holders: dict[int, int] = {}
        for i, optimizer in enumerate(run.optimizers):
            for p in held_by(optimizer):
                holders.setdefault(id(p), i)
        self._holder = {name: holders.get(id(p), -1) for name, p in self._parameters.items()}
        self._module = run.module

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if (module := self._module) is None:
            return
        self._module = None  # the first batch: whatever the user's hooks initialise is initialised
        self._owners = owners = parameter_owners(module)
        tables = {name for name, owner in owners.items() if isinstance(owner, TABLES)}
        masks = switches(module)
        masked = {name for name, p in self._parameters.items() if has_mask(owners.get(name), p, masks)}

        def then(seen: Reading) -> None:
            for name, state, size in seen.states():
                self._traces[name] = Trace(
                    name=name,
                    shape=tuple(local(self._parameters[name]).shape),
                    trainable=self._parameters[name].requires_grad,
                    optimizer=self._holder[name],
                    table=name in tables,
                    masked=name in masked,
                    seen=size,
                    start=state,
                    now=state,
                    rise=(state, state),
                    fall=(state, state),
                )
            self._alike = {name for name, same in seen.equal.items() if same}

        self._ask(at, self._parameters, {n: p for n, p in self._parameters.items() if n not in tables}, {}, then)

    @in_samples
    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        index = self._optimizers.get(id(optimizer), 0)
        if at.attempt > DENSE and self._last.get(index) == at.attempt - 1:
            return
        self._last[index] = at.attempt
        self._samples += index == 0
        self._decay = max(decay_of(optimizer), self._decay, key=_or_nan)
        held = {-1, index} if index == 0 and self._samples % FROZEN_EVERY == 1 else {index}
        chosen = {n: self._parameters[n] for n in self._traces if self._holder[n] in held}
        self._look(at, {n: self._parameters[n] for n in part(chosen, self._samples)})

    def epoch_end(self, at: Moment) -> None:
        self._pruned |= {n for n, owner in self._owners.items() if is_pruned(owner, n)}

    def end(self, at: Moment) -> None:
        self._look(at, {n: self._parameters[n] for n in self._traces}, stepping=False)

    def _look(self, at: Moment, chosen: Mapping[str, nn.Parameter], stepping: bool = True) -> None:
        self._pruned |= {n for n in chosen if n not in self._pruned and is_pruned(self._owners.get(n), n)}
        trainable = {n: p for n, p in chosen.items() if p.requires_grad}
        zero = {n: p for n, p in trainable.items() if stepping and self._traces[n].now.largest == 0}
        alike = {n: p for n, p in trainable.items() if n in self._alike and at.attempt >= SETTLED and stepping}

        def then(seen: Reading) -> None:
            for name, state, size in seen.states():
                old = self._traces[name]
                idle, identical = old.idle, old.identical
                if stepping:
                    still = state.largest == 0 and seen.no_gradient.get(name, False)
                    alike = seen.equal.get(name, False) and state.norm != old.start.norm
                    idle, identical = (idle + 1 if still else 0), (identical + 1 if alike else 0)
                rise, fall = _rise(old, state), _fall(old, state)
                self._traces[name] = replace(
                    old,
                    now=state,
                    seen=size,
                    rise=rise,
                    fall=fall,
                    idle=idle,
                    identical=identical,
                    pruned=name in self._pruned,
                )

        self._ask(at, chosen, alike, zero, then)

    def _ask(
        self,
        at: Moment,
        chosen: Mapping[str, nn.Parameter],
        alike: Mapping[str, nn.Parameter],
        zero: Mapping[str, nn.Parameter],
        then: Callable[[Reading], None],
    ) -> None:
        """Queue the pass over ``chosen``, the rows of ``alike`` and the gradients of ``zero``."""
        reading, first = Reading(at.attempt), not self._traces
        _flags(at, {n: same for n, p in alike.items() if (same := equal_rows(p)) is not None}, reading.equal)
        gradients = {n: g for n, p in zero.items() if isinstance(g := measurable(p.grad), Tensor)}
        _flags(at, {n: (g == 0).all() for n, g in gradients.items()}, reading.no_gradient)

        def arrived(rows: list[Statistics]) -> Iterator[Evidence]:
            reading.rows = rows
            then(reading)
            tags = {**at.tags(), **({"stage": "start"} if first else {})}
            yield Parameters(**tags, attempt=reading.attempt, traces=tuple(self._traces.values()), decay=self._decay)

        self._measuring.take(chosen, phase=7 * self._samples, smallest=True).ask(at, arrived)


def _or_nan(number: float) -> tuple[bool, float]:
    return math.isnan(number), number


def _flags(at: Moment, flags: Mapping[str, Tensor], found: dict[str, bool]) -> None:
    for names, values in stacked(flags):
        at.ask({"flags": values}, _into(found, names))


def _into(found: dict[str, bool], names: list[str]) -> Callable[[Mapping[str, Tensor]], None]:
    def reader(values: Mapping[str, Tensor]) -> None:
        for tensor in values.values():
            found.update(zip(names, tensor.tolist(), strict=True))

    return reader


def _rise(old: Trace, now: State) -> tuple[State, State]:
    before, after = old.rise
    return (old.now, now) if now.zeros - old.now.zeros > after.zeros - before.zeros else old.rise


def _fall(old: Trace, now: State) -> tuple[State, State]:
    before, after = old.fall
    return (old.now, now) if now.norm * before.norm < after.norm * old.now.norm else old.fall
