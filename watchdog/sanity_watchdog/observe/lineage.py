"""Follows values through the eager operations of one step, by what their functions are called."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..evidence.broadcasts import Spread
from ..evidence.detached import Cut
from . import layout
from .attending import Attending
from .batches import Samples
from .calls import Frontier, LossCall, Trace, tensors_of
from .detachment import note_cut
from .dropped import note_dropout
from .earlier import note_earlier
from .facts import NOTHING, Fact, TensorFacts, divides_by_norm, joins_sigmoids, keeps_length, softened
from .followers import Followers
from .loaders import Drawn, drawn
from .observer import is_plain, writes
from .obstacles import saved_tensor_hooks
from .operation import Operation
from .operations import (
    AS_ANOTHER,
    CELLS,
    CONVOLUTIONS,
    DRAWS,
    FROM_HOST,
    HOOKS,
    JOINS,
    KEEPS_HEAD,
    LAYERS,
    MIXING,
    NORMS,
    READS,
    RECURRENT,
    REDUCES,
    SILENT,
    UNITS,
    VIEWS,
    name_of,
)
from .origins import grown_by, line_of, note_twice, origin_of
from .pairs import averaged, compared, pairs_of
from .run import Run
from .site import user_line
from .spreads import spread_of
from .suspects import MOST as MOST_SUSPECTS
from .suspects import keeps_order, suspects
from .unused import follow_unused

UNKNOWN, ANY = -1, -2
"""In place of a version: of unknown origin; known whatever is written to it."""


class Lineage:
    """Writes into ``trace`` what the operations show; ``scored`` gets each ``log_softmax`` that has a gradient."""

    def __init__(
        self,
        trace: Trace,
        batch: Any,
        training: bool,
        scored: Callable[[LossCall], None] = lambda call: None,
        run: Run | None = None,
    ) -> None:
        made_of = Drawn() if run is None else drawn(run.loaders, run.changes_batches)
        self._trace = trace
        self._scored = scored
        self._facts = TensorFacts(trace.cuts)
        self._samples = (where := Samples(batch, made_of)).count
        trace.followers = self._followers = Followers(trace, self._facts, run, self._samples) if training else None
        trace.attending = self._attending = Attending(self._samples, made_of.count, self._facts.is_given)
        for tensor in tensors_of(batch):
            self._facts.put(tensor, Fact(data=True, rows=self._rows(tensor, where)))
            self._put_known(tensor, True)
        for tensor in () if run is None else run.module.buffers():  # norms write to them within their call
            trace.known.put(tensor, ANY)
        self._most = max((t.size(0) for t in tensors_of(batch) if t.ndim), default=1)
        self._reads = 0

    def _rows(self, tensor: Tensor, where: Samples) -> Tensor | None:
        """The samples of a tensor of the batch, numbered, where it is sure on which axis they lie."""
        axis = where.axis(tensor) if is_plain(tensor) and tensor.ndim else None
        if axis is None or tensor.shape[axis] != self._samples:
            return None
        return layout.numbered(self._samples, axis, tensor.ndim)

    def of(self, tensor: Any) -> Fact:
        """What is known of a tensor."""
        return self._facts.of(tensor)

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        if self._followers is not None:
            self._followers.called(call)

    def is_product(self, tensor: Any) -> bool:
        """Was it made of products of two codes that are drawn?"""
        return self._followers is not None and self._followers.noise.is_product(tensor)

    def compared(self, prediction: Any, target: Any) -> Spread | None:
        """How one of the two came to hold a value for each pair of samples, where the other has one for each sample."""
        pair = [t for t in (prediction, target) if isinstance(t, Tensor)]
        return pairs.spread if (pairs := compared([self.of(t).pairs for t in pair], pair)) is not None else None

    def follow(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """One operation has run."""
        name = name_of(function)
        if name == "grad_fn":
            self._obstacle("the step reads its graph, where hooks may wait")
        if name in DRAWS and not self._trace.drawn_at:
            self._trace.drawn_at = user_line()
        if function is torch.autograd.grad and self._followers is not None:
            self._followers.penalties.asked(args, kwargs, out)
            self._trace.asked.update(id(t) for a in (*args, *kwargs.values()) for t in tensors_of(a) if t.is_leaf)
        if name == "backward" and args and self._followers is not None:
            self._followers.rivals.passed(args[0], kwargs.get("gradient", args[1] if len(args) > 1 else None))
        if name in SILENT:
            if isinstance(out, Tensor) and (name.endswith("_like") or name.startswith("new_")):
                self._put_known(out, True)
                if name in DRAWS and self._followers is not None:
                    (self._followers.noise if name == "randn_like" else self._followers.even).drawn(out)
            return
        if name in HOOKS:
            self._obstacle("a hook on a tensor would fire twice")
        if name == "__setitem__":
            self._written(args)
        elif isinstance(out, Tensor):
            op = Operation(function, args, kwargs, out)
            follow_unused(self._trace, op)
            self._operation(op)
        elif name == "broadcast_tensors":  # each for itself
            given = list(tensors_of(args))
            spread = spread_of(name, given, [self.of(t) for t in given])
            for tensor, one in zip(given, out, strict=True):
                self._operation(Operation(Tensor.expand, (tensor, one.shape), {}, one))
                if spread is not None:
                    self._facts.put(one, replace(self.of(one), spread=spread))
        elif isinstance(out, (tuple, list)):
            for i, one in enumerate(out):
                if isinstance(one, Tensor):
                    self._operation(Operation(function, args, kwargs, one, i))
        elif name in READS and args and isinstance(args[0], Tensor):
            if self._followers is not None:
                self._followers.noise.read(args[0])
            if self.of(args[0]).data and not self._trace.calls:
                self._reads += 1
                self._trace.left |= args[0].numel() > 1 or self._reads >= self._most
            if args[0].requires_grad:
                self._trace.read = Cut(name.strip("_"), user_line())

    def _obstacle(self, reason: str) -> None:
        if reason not in self._trace.obstacles:
            self._trace.obstacles.append(reason)

    def _operation(self, op: Operation) -> None:
        name, inputs, out = op.name, op.inputs, op.out
        if saved_tensor_hooks():
            self._obstacle("saved-tensor hooks (checkpointing, offloading): a second backward repeats the forward")
        facts = [self.of(t) for t in inputs]
        first = facts[0] if facts else NOTHING
        self._put_known(out, name not in FROM_HOST and all(self._is_known(t, t is out) for t in inputs))
        if out._base is not None and any(out is t for t in inputs):  # a view was written to
            self._pass_on(out._base, inputs)
        if self._followers is not None:
            note_cut(self._trace, op)
        data = any(f.data for f in (facts[:1] if name in AS_ANOTHER else facts))
        made = any(f.made for f in facts) or any(isinstance(t, torch.nn.Parameter) for t in inputs)
        if out.is_nested or any(t.is_nested for t in inputs):  # some cannot even be asked for their sizes
            self._facts.put(out, Fact(data=data, made=made))
            if out.requires_grad and data:
                self._note_frontier(op, facts)
            return
        self._trace.causal |= keeps_order(op)
        if self._followers is not None:
            note_dropout(self._trace, op, first.is_raw)
            self._followers.follow(op)
        note_earlier(self._trace, op, facts)
        if data and len(self._trace.suspects) < MOST_SUSPECTS:
            self._trace.suspects += suspects(op, self._samples)
        if data:
            self._attending.follow(op, facts, self._trace)
        if name in RECURRENT and op.index:
            self._attending.states.put(out, True)
        elif name == "embedding" and inputs and not data:
            self._attending.counts(inputs[0], out)
        if out.requires_grad and data:
            self._note_frontier(op, facts)
        mixes, plain = name in MIXING, is_plain(out)
        line = line_of(op, first.line)
        origin = origin_of(op, first.is_raw, first.origin, line, [f.grown for f in facts])
        if out.requires_grad:
            given = first.softened if name == "log_softmax" else None
            note_twice(self._trace.twice, name, origin, first.origin or given)
        fact = Fact(
            data=data,
            made=made,
            origin=origin or (first.origin if name in VIEWS or joins_sigmoids(name, facts) else None),
            line=line,
            softened=softened(op, first),
            grown=grown_by(op, first.grown),
            head=self._weight(inputs) if name in LAYERS else first.head if name in KEEPS_HEAD else None,
            unit=name in UNITS or keeps_length(name, inputs, facts) or divides_by_norm(name, facts),
            norm=name in NORMS or (first.norm and name in VIEWS | {"add", "maximum"}),
            cosine=name == "cosine_similarity"
            or (name in LAYERS and sum(f.unit for f in facts) >= 2)
            or (not mixes and any(f.cosine for f in facts)),
            logs=name in ("log_softmax", "logsumexp") or (not mixes and any(f.logs for f in facts)),
            axis_added=name == "unsqueeze"
            or (name == "__getitem__" and out.ndim > inputs[0].ndim)
            or (first.axis_added and name in VIEWS),
            spread=None if mixes else spread_of(name, inputs, facts),
            rows=layout.after(op, [f.rows for f in facts]) if plain else None,
            classes=self._classes(op, facts) if plain else None,
            pairs=pairs_of(op, [f.pairs for f in facts], [f.axis_added for f in facts]),
        )
        if fact.spread is not None and name in REDUCES:
            self._note_spread(fact.spread)
            fact = replace(fact, spread=None)
        if fact.pairs is not None and averaged(fact.pairs, op):
            self._note_spread(fact.pairs.spread)
        if name == "log_softmax" and out.requires_grad and fact.origin is not None:
            axis = fact.origin.axis or 0
            scored = LossCall(name, fact.origin.where, {"input": inputs[0], "dim": axis}, out, followed=True)
            scored.head, scored.cosine = first.head, first.cosine
            self._scored(scored)
        if fact.is_known:
            self._facts.put(out, fact)

    def _put_known(self, tensor: Tensor, known: bool) -> None:
        self._trace.known.put(tensor, writes(tensor) if known else UNKNOWN)

    def _is_known(self, tensor: Tensor, written: bool = False) -> bool:
        """Nothing but what is ``known`` is in it; ``written``: by nothing since but, maybe, the operation."""
        version = self._trace.known.get(tensor)
        if isinstance(tensor, torch.nn.Parameter) or version == ANY:
            return True
        return version not in (None, UNKNOWN) and writes(tensor) - written <= version <= writes(tensor)

    def _written(self, args: tuple[Any, ...]) -> None:
        """``target[places] = value``: data without a gradient leave no trace of it in the graph."""
        target, inputs = args[0], [t for a in args for t in tensors_of(a, 1)]
        for tensor in (target, target._base):
            if tensor is not None:
                self._pass_on(tensor, inputs)

    def _pass_on(self, target: Tensor, sources: list[Tensor]) -> None:
        if self._followers is not None:
            self._followers.written(target, sources)
        others = [t for t in sources if t is not target]
        self._put_known(target, self._is_known(target, written=True) and all(map(self._is_known, others)))
        if any(self.of(t).data for t in sources):
            self._facts.put(target, replace(self.of(target), data=True, rows=None, classes=None))

    @staticmethod
    def _weight(inputs: list[Tensor]) -> Tensor | None:
        return next((t for t in inputs[1:] if t.ndim >= 2 and t.is_leaf and isinstance(t, torch.nn.Parameter)), None)

    def _classes(self, op: Operation, facts: list[Fact]) -> Tensor | None:
        name, inputs, out = op.name, op.inputs, op.out
        axis = out.ndim - 1 if name == "linear" else 1
        before = facts[0].classes if name == "linear" and facts else None
        if before is not None and before.ndim == out.ndim and before.shape[-1] == 1 < before.numel():
            return before  # the axis that it mixes is another one, such as time behind a convolution
        weight = self._weight(inputs) if name in CONVOLUTIONS or name == "linear" else None
        if weight is None or not 0 <= axis < out.ndim or out.shape[axis] != len(weight):
            return layout.after(op, [f.classes for f in facts])
        return layout.numbered(len(weight), axis, out.ndim)

    def _note_spread(self, spread: Spread) -> None:
        if spread not in self._trace.spreads:
            self._trace.spreads.append(spread)

    def _note_frontier(self, op: Operation, facts: list[Fact]) -> None:
        name, inputs = op.name, op.inputs
        met = [t for t, f in zip(inputs, facts, strict=True) if f.data]
        wanting = [(t, f) for t, f in zip(inputs, facts, strict=True) if f.data and t.requires_grad]
        if wanting:
            self._trace.probed |= any(t.is_leaf or not f.made for t, f in wanting)
            late = [t for t in met if not t.requires_grad] if name in JOINS and not self._trace.calls else []
            self._trace.joined += [Frontier(op, None, user_line(), t) for t in late]
            return
        ids = next((t for t in met if not t.is_floating_point()), None) if name.startswith("embedding") else None
        # a recurrent layer's input comes first, and its state, which may be larger, begins at zero
        main = met[0] if name in RECURRENT or name in CELLS else max(met, key=lambda t: t.numel())
        self._trace.frontier.append(Frontier(op, ids, user_line(), main, self.of(main).rows))
