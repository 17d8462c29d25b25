"""Float16 gradients while they are still scaled, micro-batch by micro-batch, and float16 activations."""

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Set
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ..evidence.base import Evidence
from ..evidence.half import CONFIRM, HalfGradients, HalfRange, LostLayer, median
from ..evidence.readings import Histogram, Layers, Scalars, Unseen, Vital
from .activations import Activations
from .formats import autocasts_to_half, has_dtype, live_scaler, native_bf16, scale_of
from .intercept import anything_compiled
from .moment import Moment
from .names import named_all, parameter_owners
from .observer import Observer, in_samples
from .run import Run
from .sampling import DENSE
from .tensors import EDGES, HALF_LIMIT, PART, TINY, ZERO, Measuring, Statistics, part
from .underflow import lost_shares, passed_through_half

SHOWN = 64
"""Parameters that one piece of evidence names at most."""
LIVE = 2.0**8
"""Loss scale from which not every gradient of a run can be lost."""
PHASE = 7
"""How far samples of successive micro-batches are apart."""


class HalfWatch(Observer):
    """Looks at gradients right after backward, in every run at first and then only where they are float16's."""

    codes = ("WD201", "WD202")

    def start(self, run: Run, at: Moment) -> None:
        self._run = run
        self._parameters = named_all(run.module)
        self._numels = {name: p.numel() for name, p in self._parameters.items()}
        self._index = {name: i for i, name in enumerate(self._parameters)}
        tables = (nn.Embedding, nn.EmbeddingBag)
        self._tables = frozenset(n for n, owner in parameter_owners(run.module).items() if isinstance(owner, tables))
        self._stored = {name for name, p in self._parameters.items() if p.dtype is torch.float16}
        self._bf16 = native_bf16(run.device)
        self._measuring, self._taken = Measuring(), 0
        parts = -(-len(self._parameters) // PART)
        self._shares: deque[float] = deque(maxlen=CONFIRM)
        self._each: deque[array[float]] = deque(maxlen=CONFIRM * max(parts, 1))
        self._held: dict[str, Tensor] = {}
        self._known: bool | None = True if autocasts_to_half(run) or has_dtype(run.module, torch.float16) else None
        self._overflowed = self._unsure = self._ever = False
        self._attempt = -1
        self._activations: Activations | None = None
        self._ends: dict[str, Any] = {}

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        self._activations = None
        if at.stage != "train" or not self._known or not at.sampled or not (at.sync or self._overflowed):
            return ()
        self._overflowed = False
        if anything_compiled(self._run.module):  # a hook would make it compile again
            at.emit(Unseen(codes=("WD202",), reason="activations of compiled code", **at.tags()))
            return ()
        self._activations = Activations(self._run.module)
        return (self._activations,)

    def output(self, at: Moment, output: Any) -> None:
        watched, self._activations = self._activations, None
        if watched is not None and watched.seen:
            at.ask({"ends": watched.ends()}, lambda values: self._ranges(at, watched.seen, values["ends"]))

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._known and self._looking(at):
            gradients = {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
            if gradients:
                some = part(gradients, self._taken)
                self._held = self._measuring.samples(some, phase=PHASE * self._taken)

    @in_samples
    def after_backward(self, at: Moment) -> None:
        if self._known is False or not self._looking(at):
            return
        gradients = {n: p.grad for n, p in self._parameters.items() if p.grad is not None}
        if not gradients:
            return
        turn, held = self._taken, self._held
        self._taken, self._held = turn + 1, {}
        found = self._measuring.take(part(gradients, turn), phase=PHASE * turn, formats=True, since=held)
        scale = scale_of(self._run, self._run.device)
        known: dict[str, Any] = {"old": frozenset()}
        at.ask({"scale": scale}, lambda values: known.update(scale=float(values["scale"])))
        if held:  # cleared to zeros is as good as cleared
            used = torch.stack([sample.any().to(scale.device) for sample in held.values()])
            at.ask(
                {"used": used},
                lambda values: known.update(old={n for n, u in zip(held, values["used"].tolist(), strict=True) if u}),
            )
        found.ask(at, lambda rows: self._judge(at, rows, known["scale"], known["old"]))

    def _looking(self, at: Moment) -> bool:
        """Of a late pair of samples only the first; both see the same."""
        if at.sampled and (at.attempt <= DENSE or at.attempt != self._attempt + 1):
            self._attempt = at.attempt
            return True
        return False

    def end(self, at: Moment) -> None:
        if self._unsure and not self._shares:
            at.emit(Unseen(codes=("WD201", "WD202"), reason="no float16", **at.tags()))

    def _judge(self, at: Moment, rows: list[Statistics], scale: float, held: Set[str]) -> Iterable[Evidence]:
        if self._known is None and any(row.live for row in rows):
            self._known = passed_through_half(rows)
            self._unsure = not self._known
        if not self._known:
            return
        rows = [row for row in rows if row.largest != 0 or row.name not in held]
        bad = [row for row in rows if not row.finite]
        largest = max((row.largest for row in rows if row.finite), default=0.0)
        scaled = live_scaler(self._run)
        yield HalfRange(
            bad=tuple(row.name for row in reversed(bad)),
            infinite=any(math.isinf(row.largest) for row in bad),
            headroom=math.log2(HALF_LIMIT / largest) if largest else math.inf,
            scale=scale,
            scaled=scaled,
            native_bf16=self._bf16,
            **self._ends,
            **at.tags(),
        )
        self._ends = {}
        room = {row.name: math.log2(HALF_LIMIT / row.largest) if row.finite else 0.0 for row in rows if row.largest}
        yield self._layers(at, "log2_overflow_headroom", self._of_each(room))
        self._overflowed |= bool(bad)
        if not bad and rows:
            yield from self._underflow(at, rows, scale, scaled)

    def _underflow(self, at: Moment, rows: list[Statistics], scale: float, scaled: bool) -> Iterable[Evidence]:
        share, shares = lost_shares(rows, self._stored, self._tables)
        silent = all(row.largest == 0 for row in rows)
        self._ever |= not silent
        if math.isnan(share) or (silent and scale >= LIVE):  # a loss that is met has no gradient at all
            return
        self._shares.append(share)
        each = self._of_each(shares)
        self._each.append(each)
        yield self._layers(at, "underflow_share", each)
        seen = HalfGradients(
            shares=tuple(self._shares),
            layers=tuple(sorted(self._losing(rows), key=lambda x: -x.share)[:SHOWN]),
            measured=sum(not math.isnan(value) for value in shares.values()),
            silent=silent,
            scale=scale,
            scaled=scaled,
            native_bf16=self._bf16,
            ever=self._ever,
            **at.tags(),
        )
        yield seen
        worst = max((v for v in shares.values() if not math.isnan(v)), default=0.0)
        yield Vital(key="gradients", text=self._text(seen), **at.tags())
        yield Scalars(values={"underflow": seen.share, "worst_underflow": worst}, **at.tags())
        if seen.alarming:
            yield histogram(at, rows)

    def _of_each(self, values: Mapping[str, float]) -> "array[float]":
        """One value per parameter; NaN where it was not measured."""
        each = array("f", [math.nan]) * len(self._index)
        for name, value in values.items():
            each[self._index[name]] = value
        return each

    def _layers(self, at: Moment, quantity: str, values: Iterable[float]) -> Layers:
        return Layers(quantity=quantity, names=tuple(self._index), values=tuple(values), **at.tags())

    def _text(self, seen: HalfGradients) -> str:
        scale = f"loss scale {seen.scale:g}" if seen.scaled else "no loss scaler"
        return f"float16: {scale}, {seen.share:.1%} of gradient elements lost"

    def _losing(self, rows: Iterable[Statistics]) -> Iterable[LostLayer]:
        for row in rows:
            column = self._index[row.name]
            known = [each[column] for each in self._each if not math.isnan(each[column])]
            if len(known) >= min(CONFIRM, len(self._each)) and (share := median(tuple(known))) > 0:
                largest = math.log2(row.largest) if row.largest > 0 else -math.inf
                yield LostLayer(
                    name=row.name,
                    numel=row.numel,
                    share=share,
                    error=row.error(share),
                    zeros=row.zero_share,
                    largest=largest,
                )

    def _ranges(self, at: Moment, seen: list[tuple[str, str]], ends: Tensor) -> Iterable[Evidence]:
        """``ends``: per module the least and the largest value of its float16 output."""
        rows = ends.tolist()
        first = next((i for i, (_, high) in enumerate(rows) if high == math.inf), None)
        finite = [(max(abs(low), abs(high)), i) for i, (low, high) in enumerate(rows)]
        finite = [(value, i) for value, i in finite if math.isfinite(value)]
        top, tightest = max(finite, default=(0.0, 0))
        self._ends = {
            "module": "" if first is None else seen[first][0],
            "kind": "" if first is None else seen[first][1],
            "tightest": seen[tightest][0],
            "activation_headroom": math.log2(HALF_LIMIT / top) if top else math.inf,
        }
        if first is not None:
            yield HalfRange(native_bf16=self._bf16, **self._ends, **at.tags())


def histogram(at: Moment, rows: list[Statistics]) -> Histogram:
    """Octaves of all sampled gradient elements; zeros stand below float16's smallest number."""
    totals: Mapping[int, int] = {i: sum(row.bins[i] for row in rows) for i in range(ZERO, TINY + len(EDGES) + 1)}
    edges = (float(EDGES[0] - 15), *map(float, EDGES), 16.0)
    counts = (totals[ZERO], *(totals[TINY + i] for i in range(len(EDGES) + 1)))
    tag = "log2 |scaled gradient| (float16: subnormal from -24, normal from -14, limit 16; left: zeros)"
    return Histogram(tag=tag, edges=edges, counts=tuple(map(float, counts)), **at.tags())
