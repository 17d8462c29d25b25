"""Looks at what the loop does with batches: backward passes, optimizer steps, graphs that stay alive."""

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as modules
from torch.optim import Optimizer
from torch.utils.module_tracker import ModuleTracker

from ..evidence.loop import GraphsKept, Progress
from ..evidence.readings import Unseen
from .formats import live_scaler
from .holding import held_by
from .membership import SHARDED
from .moment import Moment
from .observer import Observer, in_samples, is_plain
from .row import Row
from .run import Run
from .sampling import DENSE
from .scaler import inner

TELLING = (8, 64, 128, 512)
"""Batches after which progress is told, sampled or not."""
NODES = 32
"""Nodes of a graph that carry its marker, nearest to the loss first."""
MARKED = 32
"""Graphs that are remembered."""
LOOKED = 16
"""Backward passes before which gradients are looked at: zeros were cleared as well."""
LATE = 2
"""Attempts by which a graph must have outlived its own: the last ones may still be in use."""
HEAD = 256
"""Values of each parameter that are compared at the end of a run without an optimizer."""
NAME = "sanity_watchdog"


@dataclass
class _Lull:
    """Batches in which nothing steps any more.

    Attributes:
        seen: what each look has found: backward passes or no loss, the version of the parameters, counts of steps.
        batch: where it began. epochs: those that had ended at the first look. looks: how many there were.
    """

    seen: tuple[Any, ...] = ()
    batch: int = 0
    epochs: int = 0
    looks: int = 0

    @property
    def silent(self) -> bool:
        return self.seen[:1] == ("silent",)


class LoopObserver(Observer):
    """Counts backward passes and steps; exactly until the run has settled, which is where they may be missing."""

    codes = ("WD506",)

    def __init__(self) -> None:
        self._backwards = self._attempts = self._steps = self._epochs = 0
        self._stepped: set[int] = set()
        self._without: set[int] = set()
        self._cleared: set[int] = set()
        self._version = 0
        self._fresh = False
        self._lull = _Lull()
        self._before = 0
        self._silent = False
        self._heads: list[tuple[Tensor, Tensor]] = []

    def start(self, run: Run, at: Moment) -> None:
        self._version = _version(run)
        if not any(o.param_groups for o in run.optimizers):  # what moves them by hand may count no version
            plain = [
                p for p in run.module.parameters() if p.requires_grad and is_plain(p) and p.layout is torch.strided
            ]
            self._heads = [(p, _head(p).clone()) for p in plain]

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        self._backwards += 1
        if self._backwards > 1:
            cleared = _without_gradient if at.run.automatic or self._backwards > LOOKED else _cleared
            waiting = self._waiting(at.run).items()
            self._cleared |= {i for i, o in waiting if i not in self._cleared and cleared(o)}

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._attempts += 1
        self._stepped.add(id(inner(optimizer)))

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._steps += 1
        self._stepped.add(id(inner(optimizer)))  # where its closure is not called, no attempt is told

    def output(self, at: Moment, output: Any) -> None:
        self._silent = output is None

    def batch_end(self, at: Moment, output: Any) -> None:
        passed, self._before = self._backwards > self._before, self._backwards
        if at.sampled:
            self._look(at, passed)
        if at.sampled or at.batch + 1 in TELLING or (self._fresh and not (self._stepped and self._backwards)):
            self._fresh = False
            self._tell(at, at.batch + 1)

    def rested(self, at: Moment, first: int, row: Row) -> None:
        self._epochs += len(row.epochs)

    def epoch_end(self, at: Moment) -> None:
        self._epochs += 1
        self._fresh = True  # told with the next batch: the user may step in ``on_train_epoch_end``

    def end(self, at: Moment) -> None:
        self._tell(at, at.batch, ended=True)

    def _moved(self, run: Run) -> bool:
        if self._heads:
            return not all(torch.equal(_head(p), head) for p, head in self._heads)
        return not self._attempts and _version(run) > self._version

    def _idle(self, at: Moment) -> tuple[int, ...]:
        """Numbers of the optimizers that could have stepped at each look and never did."""
        if self._stepped - {id(o) for o in at.run.optimizers}:
            return ()  # another one has taken its place
        waiting = self._waiting(at.run)
        self._without |= {i for i, o in waiting.items() if _without_gradient(o)}
        return tuple(i for i in waiting if i not in self._without)

    def _waiting(self, run: Run) -> dict[int, Optimizer]:
        """Optimizers that have not stepped, by number; Lightning's stand-in is none."""
        return {i: o for i, o in enumerate(run.optimizers) if id(o) not in self._stepped and o.param_groups}

    def _look(self, at: Moment, passed: bool) -> None:
        """Was this batch like the last one that was looked at, and has nothing stepped in between?"""
        seen: tuple[Any, ...] = ()
        if self._silent and at.run.automatic and (version := _version(at.run)) > self._version:
            seen = "silent", version
        elif passed and at.idle:
            seen = "passed", _version(at.run), at.attempt, self._attempts, self._steps
        if seen != self._lull.seen:
            self._lull = _Lull(seen, at.batch - (at.idle if passed else 0), self._epochs)
        self._lull.looks += bool(seen)

    def _stopped(self, at: Moment, batches: int) -> int:
        """Batches without any step up to the last one, after there had been steps; 0 where that is not certain."""
        lull = self._lull
        if lull.looks < 2 or lull.seen[1] != _version(at.run) or not (at.idle or lull.silent):
            return 0
        return batches - lull.batch

    def _tell(self, at: Moment, batches: int, ended: bool = False) -> None:
        run, idle = at.run, self._idle(at)
        plans = ((self._attempts, run.max_steps), (self._epochs, run.max_epochs))
        at.emit(
            Progress(
                automatic=at.run.automatic,
                optimizers=sum(bool(o.param_groups) for o in at.run.optimizers),  # Lightning's stand-in has none
                batches=batches,
                backwards=self._backwards,
                attempts=self._attempts,
                steps=self._steps,
                epochs=self._epochs,
                ended=ended,
                moved=self._moved(at.run),
                idle=idle,
                cleared=bool(self._cleared.intersection(idle)),
                summing=not run.automatic and not self._cleared and not all(map(_without_gradient, run.optimizers)),
                per_epoch=run.batches_per_epoch,
                share=max(done / planned if planned > 0 else 0.0 for done, planned in plans),
                stopped=self._stopped(at, batches),
                stopped_epochs=self._epochs - self._lull.epochs,
                silent=self._lull.silent,
                scaled=live_scaler(run),
                **at.tags(),
            )
        )


def _without_gradient(optimizer: Optimizer) -> bool:
    return all(p.grad is None for p in held_by(optimizer))


def _cleared(optimizer: Optimizer) -> bool:
    """Nothing but zeros, or no gradient at all; zeros are looked at on the host only, where nothing waits."""
    gradients = (p.grad for p in held_by(optimizer))
    return all(g is None or (is_plain(g) and g.is_cpu and g.layout is torch.strided and not g.any()) for g in gradients)


def _head(parameter: Tensor) -> Tensor:
    return parameter.detach().flatten()[:HEAD]


def _version(run: Run) -> int:
    """How often the optimizers' parameters have been written to in place; 0 where that means nothing."""
    held = {id(p): p for p in held_by(*run.optimizers)}
    if run.strategy.startswith(SHARDED) or any(p.is_inference() for p in held.values()):
        return 0
    return sum(p._version for p in held.values())


class _Marker:
    """Lives as long as the node that carries it."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True)
class _Marked:
    marker: "weakref.ref[_Marker]"
    attempt: int
    step: int
    epoch: int


def mark(loss: Tensor) -> "weakref.ref[_Marker] | None":
    """Put a marker on the nodes of a graph; the reference dies with the last of them."""
    if loss.grad_fn is None:
        return None
    marker = _Marker()
    queue: deque[Any] = deque([loss.grad_fn])
    for _ in range(NODES):
        if not queue:
            break
        node = queue.popleft()
        node.metadata[NAME] = marker
        queue.extend(n for n, _ in node.next_functions if n is not None and not hasattr(n, "variable"))
    return weakref.ref(marker)


def _tracked() -> bool:
    """Does torch follow which module runs, as its counter of FLOPs does? That keeps nodes, not tensors, to its end."""
    hooks = modules._global_forward_pre_hooks.values()
    return any(isinstance(getattr(hook, "__self__", None), ModuleTracker) for hook in hooks)


class GraphObserver(Observer):
    """Marks the graphs of sampled steps and counts those that outlive them."""

    codes = ("WD509",)

    def __init__(self) -> None:
        self._marked: deque[_Marked] = deque(maxlen=MARKED)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if not self._marked or self._marked[-1].attempt < at.attempt - (at.attempt > DENSE):
            if _tracked():
                at.emit(Unseen(**at.tags(), codes=self.codes, reason="torch's ModuleTracker keeps parts of graphs"))
            elif (marker := mark(loss)) is not None:
                self._marked.append(_Marked(marker, at.attempt, at.step, at.epoch))

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        self._tell(at)

    def end(self, at: Moment) -> None:
        self._tell(at, ended=True)

    def _tell(self, at: Moment, ended: bool = False) -> None:
        past = [m for m in self._marked if m.attempt + LATE < at.attempt]
        if not past:
            return
        alive = [m for m in past if m.marker() is not None]
        at.emit(
            GraphsKept(
                marked=len(past),
                alive=len(alive),
                span=at.step - alive[0].step if alive else 0,
                epochs=at.epoch - alive[0].epoch if alive else 0,
                ended=ended,
                **at.tags(),
            )
        )
