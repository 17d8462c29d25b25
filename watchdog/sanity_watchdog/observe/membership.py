"""Who belongs to whom: parameters of the module, tensors of the optimizers, leaves of the loss. By identity."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from ..evidence.detached import Cut
from ..evidence.membership import Foreign, Frozen, LossLeaves, Member, Membership, Reached, Stranger
from ..evidence.readings import Unseen
from .detachment import last_end
from .holding import held_by, ids_held_by
from .leaves import homes, leaves
from .left_out import left_out
from .moment import Moment
from .names import parameter_owners, plain_name
from .observer import Observer, in_samples, loss_of, writes
from .run import Run
from .sharding import local
from .sharing import Sharing, aliases

WATCHED = 32
"""Attempts in which the presence of gradients is looked at every time; later only at samples."""
WINDOW = 12
"""Attempts of an optimizer after which a parameter without any gradient is named: whole turns of 2, 3, 4, 6 heads."""
SHORT = 5
"""Attempts that suffice where the run has no more."""
TOGGLED = 3
"""Samples at whose end an optimizer was still toggled."""
GRAPHS = 4
"""Losses walked at most, where several are needed for one attempt of each optimizer."""
SHARDED = ("FSDP", "DeepSpeed")
"""Strategies whose optimizers hold other tensors than the module."""


class MembershipObserver(Observer):
    """Follows which parameters get gradients, and compares with who holds them. Never reads a device."""

    codes = ("WD311", "WD312", "WD313", "WD314", "WD315")

    def __init__(self) -> None:
        self._run: Run | None = None
        self._waiting: dict[int, Tensor] = {}
        self._got: set[int] = set()
        self._moved: set[int] = set()
        self._attempts: dict[int, int] = {}
        self._graphs = 0
        self._told = self._complete = self._began = False
        self._frozen_at_start: set[str] = set()
        self._shards: dict[str, Tensor] = {}
        self._left_toggled = 0
        self._sharing = Sharing()
        self._left_out: dict[int, str] = {}
        self._ends: dict[Cut, set[int]] = {}
        self._held_at_start: set[int] = set()
        self._writes: dict[int, int] = {}

    def start(self, run: Run, at: Moment) -> None:
        if run.strategy.startswith(SHARDED):
            at.emit(Unseen(**at.tags(), codes=self.codes, reason=f"{run.strategy} moves the parameters"))
            return
        self._run = run
        self._waiting = {id(p): p for p in run.module.parameters()}
        self._shards = {plain_name(n): p for n, p in run.module.named_parameters() if local(p) is not p}
        self._held_at_start = _held(run)
        self._frozen_at_start = {plain_name(n) for n, p in run.module.named_parameters() if not p.requires_grad}

    @in_samples
    def batch(self, at: Moment, batch: Any) -> None:
        if self._run is not None and not self._writes:  # what hooks initialise is initialised
            self._writes = {key: writes(p) for key, p in self._waiting.items()}

    def output(self, at: Moment, output: Any) -> None:
        run, loss = self._run, loss_of(output)
        if at.stage == "train" and at.trace is not None and not self._ends:
            self._ends = dict(at.trace.ends)
        first = run is not None and run.automatic and at.stage == "train" and at.sync and not self._graphs
        if first and loss is not None and at.trace is not None:
            with torch._C.DisableTorchFunction():
                self._left_out = left_out(loss, at.trace.calls)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        run = self._run
        if run is None or self._graphs >= (1 if run.automatic else GRAPHS) or any(self._attempts.values()):
            return
        self._graphs += 1
        if self._graphs == 1:
            at.emit(self._frozen(at, run, no_graph=run.automatic and not loss.requires_grad))
        if self._shards:
            at.emit(Unseen(**at.tags(), codes=("WD313",), reason="sharded parameters are replaced during the step"))
        elif loss.grad_fn is not None:
            at.emit(_loss_leaves(at, run, loss))

    def after_backward(self, at: Moment) -> None:
        self._began = True
        self._note(at)

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        run = self._run
        if run is None or (run.automatic and not self._began):
            return  # no loss was returned so far
        self._note(at)
        if not self._told:
            self._moved.update(id(p) for p in held_by(optimizer) if p.grad is not None)
            if len(run.optimizers) > 1:
                self._sharing.note(optimizer, at.batch)
        self._attempts[id(optimizer)] = attempts = self._attempts.get(id(optimizer), 0) + 1
        if self._told and attempts > WINDOW and not at.sampled:
            return
        least = min(self._attempts.get(id(o), 0) for o in run.optimizers) if run.optimizers else 0
        if not self._told and least >= (1 if run.automatic else 2):
            self._told = True
            at.emit(self._membership(at, run))
            if run.unused_stops:
                at.emit(self._reached(at, run, 1))
        if least >= WINDOW and (at.sampled or least == WINDOW) and not self._complete:
            self._complete = not self._waiting
            at.emit(self._reached(at, run, WINDOW))

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        self._note(at)

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        run = self._run
        if run is None or run.automatic or not getattr(run.module, "_param_requires_grad_state", None):
            return
        self._left_toggled += 1
        if self._left_toggled < TOGGLED or max(self._attempts.values(), default=0) < WINDOW:
            return
        held = {id(t) for _, t in _tensors(run)}.intersection(self._waiting)
        still = {n for n, p in self._named(run).items() if id(p) in held and not p.requires_grad}
        toggled = tuple(sorted(still - self._frozen_at_start))
        if toggled:
            at.emit(replace(self._frozen(at, run, no_graph=False), toggled=toggled))

    def end(self, at: Moment) -> None:
        run = self._run
        if run is None:
            return
        if self._got and (run.thaws or not self._told):
            at.emit(self._membership(at, run, ended=True))
        if not self._graphs:
            at.emit(Unseen(**at.tags(), codes=("WD313", "WD315"), reason="backward was called directly"))
        at.emit(self._reached(at, run, SHORT, ended=True))

    def _note(self, at: Moment) -> None:
        """Remember who has a gradient now."""
        if self._run is None or not self._waiting or (at.attempt >= WATCHED and not at.sampled):
            return
        got = [key for key, p in self._waiting.items() if p.is_leaf and p.grad is not None]
        for key in got:
            del self._waiting[key]
        self._got.update(got)

    def _named(self, run: Run) -> dict[str, Tensor]:
        """The module's parameters; the shards where a step without a backward pass has left them gathered."""
        return {(name := plain_name(n)): self._shards.get(name, p) for n, p in run.module.named_parameters()}

    def _membership(self, at: Moment, run: Run, ended: bool = False) -> Membership:
        owners, held = parameter_owners(run.module), _held(run)
        named = self._named(run)
        used = self._got | {id(p) for p in named.values() if p.is_leaf and p.grad is not None}  # some came later
        missing = [n for n, p in named.items() if p.requires_grad and id(p) not in held and id(p) in used]
        waiting = {
            n for n in missing if run.thaws and isinstance(owners.get(n), _BatchNorm)
        }  # which it leaves trainable
        if not ended:
            missing = [n for n in missing if n not in waiting]
        known = {id(p) for p in named.values()} | self._moved
        free: dict[tuple[int, ...], list[str]] = {}
        for name, p in reversed(named.items()):
            if id(p) not in held:
                free.setdefault(tuple(p.shape), []).append(name)
        foreign = []
        for index, t in _tensors(run):
            if id(t) not in known and t.requires_grad and not isinstance(t, UninitializedParameter):
                shape = tuple(t.shape)
                foreign.append(Foreign(index, shape, free[shape].pop() if free.get(shape) else ""))
        return Membership(
            **at.tags(),
            optimizers=sum(bool(o.param_groups) for o in run.optimizers),  # Lightning's stand-in has none
            trainable=sum(p.requires_grad for p in named.values()),
            automatic=run.automatic,
            missing=tuple(_member(n, named[n], owners.get(n)) for n in missing),
            waiting=bool(missing) and waiting.issuperset(missing) and held <= self._held_at_start,
            foreign=tuple(foreign),
            aliases=aliases({n: p for n, p in named.items() if id(p) in held and id(p) in used}),
            shared=tuple(self._sharing.between(run.optimizers, named)),
        )

    def _reached(self, at: Moment, run: Run, least: int, ended: bool = False) -> Reached:
        held = _held(run)
        steps: dict[int, int] = {}
        for optimizer in run.optimizers:
            for p in held_by(optimizer):
                steps[id(p)] = max(steps.get(id(p), 0), self._attempts.get(id(optimizer), 0))
        named = {n: p for n, p in self._named(run).items() if p.requires_grad and id(p) in held}
        without = [n for n, p in named.items() if id(p) in self._waiting and steps.get(id(p), 0) >= least]
        owners = parameter_owners(run.module) if without else {}
        fatal = run.unused_stops and run.automatic
        lost = {id(named[n]) for n in without}
        parts = [ids_held_by(o) for o in run.optimizers] if len(run.optimizers) > 1 and len(lost) < len(named) else []
        return Reached(
            **at.tags(),
            attempts=min((self._attempts.get(id(o), 0) for o in run.optimizers), default=0),
            elements=sum(p.numel() for p in named.values()),
            matrices=sum(p.ndim > 1 for p in named.values()),
            without=tuple(_member(n, p := named[n], owners.get(n), self._writes.get(id(p))) for n in without),
            fatal=fatal,
            waits=run.phased and not ended,
            idle=tuple(i for i, part in enumerate(parts) if part and part <= lost),
            cut=last_end(self._ends, lost),
            left_out=next((self._left_out[key] for n in without if (key := id(named[n])) in self._left_out), ""),
        )

    def _frozen(self, at: Moment, run: Run, no_graph: bool) -> Frozen:
        named = self._named(run)
        names = {id(p): n for n, p in named.items()}
        trainable = tuple(n for n, p in named.items() if p.requires_grad)
        frozen, owners = self._frozen_at_start.difference(trainable), parameter_owners(run.module)
        adapted = {id(owners.get(n)) for n, p in named.items() if p.ndim > 1 and not p.requires_grad}
        held = [(names[id(p)], bool(o.state.get(p))) for o in run.optimizers for p in held_by(o) if id(p) in names]
        return Frozen(
            **at.tags(),
            parameters=len(named),
            matrices=sum(p.ndim > 1 for p in named.values()),
            trainable=trainable,
            beside=sum(named[n].ndim < 2 and id(owners.get(n)) in adapted for n in trainable),
            held=tuple(n for n, _ in held if n in frozen and named[n].ndim > 1),
            trained_before=tuple(n for n, state in held if n in frozen and state and run.resumed),
            in_vain=_frozen_in_vain(run.module, named),
            no_graph=no_graph,
        )


def _frozen_in_vain(module: nn.Module, named: dict[str, Tensor]) -> tuple[str, ...]:
    """Names of modules and parameters that were given an attribute which freezes nothing, and that train."""
    found = [n for n, p in named.items() if p.requires_grad and vars(p).get("require_grad") is False]
    for name, part in module.named_modules():
        if vars(part).get("requires_grad") is False:
            own = list(part.parameters())
            if own and all(p.requires_grad for p in own):
                found.append(plain_name(name))
    return tuple(found)


def _loss_leaves(at: Moment, run: Run, loss: Tensor) -> LossLeaves:
    found = leaves(loss)
    known = {id(t) for t in (*run.module.parameters(), *run.module.buffers())}
    held = {id(t) for _, t in _tensors(run)}
    unknown = [t for t in found.tensors if id(t) not in known]
    where = homes(run.module, unknown) if unknown else {}
    strangers = []
    by_hand = at.trace.asked if at.trace is not None else set()  # such as those of a network drawn anew in each step
    for tensor in unknown:
        home = where.get(id(tensor))
        parameter = isinstance(tensor, nn.Parameter) and (home is not None or id(tensor) not in by_hand)
        if home is not None or parameter:
            path, evaluating = (home.path, home.evaluating) if home is not None else ("", False)
            strangers.append(Stranger(path, tuple(tensor.shape), parameter, id(tensor) in held, evaluating))
    return LossLeaves(
        **at.tags(),
        leaves=len(found.tensors),
        strangers=tuple(strangers),
        automatic=run.automatic,
        hidden=found.hidden,
    )


def _member(name: str, parameter: Tensor, owner: nn.Module | None, before: int | None = None) -> Member:
    written = before is not None and writes(parameter) != before
    return Member(name, parameter.numel(), parameter.ndim > 1, owner is not None and not owner.training, written)


def _tensors(run: Run) -> Iterator[tuple[int, Tensor]]:
    """Number of the optimizer and tensor, for all that the run's optimizers hold."""
    for index, optimizer in enumerate(run.optimizers):
        for tensor in held_by(optimizer):
            yield index, tensor


def _held(run: Run) -> set[int]:
    """Identities of what any optimizer holds, those that the module keeps for itself included."""
    kept = [v if isinstance(v, (list, tuple)) else (v,) for v in vars(run.module).values()]
    own = [o for several in kept for o in several if isinstance(o, Optimizer)]
    return ids_held_by(*run.optimizers, *own)
