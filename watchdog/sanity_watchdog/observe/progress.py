"""One number per batch: the loss, the labels' range, the sums of the inputs. Written on the device, read at samples."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.data import Finiteness, LabelOrder
from ..evidence.progress import Losses, LossFinite
from ..evidence.readings import Unseen
from ..evidence.targets import TargetRange
from . import loaders
from .batches import Element, Step, elements, follow
from .hazards import hazards
from .labels import Labels
from .ledger import Column, Ledger, unrolled
from .moment import Moment
from .observer import Observer, is_plain
from .run import Run
from .scores import Scores

FEWEST_ROWS, MOST_ROWS = 128, 1024
"""Batches remembered: enough to reach from one sample to the next at the default interval, accumulating up to 5."""
INPUTS = 8
"""Floating tensors of a batch whose sums are taken."""
SMALL = 4096
"""Elements up to which the place of a NaN is kept as well."""
RECENT = 128
"""Losses in the evidence."""
ORDER = 64
"""Batches in the evidence about the order of labels."""


@dataclass
class Input:
    """Where a floating tensor of the batch is, and its columns: the sum, and in small ones the place of a NaN."""

    path: str
    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    total: Column
    place: Column | None


@dataclass
class Seen:
    """What the host knows so far, bounded."""

    until: int = -1
    losses: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    count: int = 0
    dropped_highest: float = math.nan
    bad_input: tuple[str, int] = ("", -1)
    failure: LossFinite | None = None
    order: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=ORDER))


class Progress(Observer):
    """Keeps a ring of numbers per batch on the device, and what it showed so far on the host."""

    codes = ("WD105", "WD110", "WD121", "WD141", "WD142", "WD143", "WD144", "WD145")

    def __init__(self) -> None:
        self._ledger = Ledger(FEWEST_ROWS)
        self._loss: Column | None = None
        self._inputs: list[Input] | None = None
        self._length: tuple[Step, ...] = ()
        self._sizes: list[int] = []
        self._hazards: tuple[str, ...] | None = None
        self._scores = Scores()
        self._seen = Seen()
        self._batch: Any = None
        self._samples = 0
        self._returned = True

    def start(self, run: Run, at: Moment) -> None:
        rows = min(max(2 * run.every_n_steps * run.accumulate, FEWEST_ROWS), MOST_ROWS)
        self._ledger = Ledger(rows)
        self._sizes = [0] * rows
        self._scores.shuffled = loaders.shuffles(run.loaders[0]) if len(run.loaders) == 1 else None

    # -- every batch

    def batch(self, at: Moment, batch: Any) -> None:
        self._batch = batch
        if self._inputs is None:
            self._inputs = self._plan(batch)
        row = at.batch % self._ledger.rows
        length = follow(batch, self._length) if self._length else None
        self._sizes[row] = size = len(length) if length is not None and length.ndim else 0
        self._samples += size
        for one in self._inputs:
            tensor = follow(batch, one.steps)
            if tensor is not None and tensor.numel():
                self._sum(one, tensor.detach(), row, at.batch)
        self._scores.labels.note(batch, row, at.batch)

    def _plan(self, batch: Any) -> list[Input]:
        found = elements(batch)
        lengths = Counter(len(e.tensor) for e in found if e.tensor.ndim)
        usual = lengths.most_common(1)[0][0] if lengths else 0
        self._length = next((e.steps for e in found if e.tensor.ndim and len(e.tensor) == usual), ())
        floats = [e for e in found if e.tensor.is_floating_point() and e.tensor.numel()]
        return [self._input(e) for e in floats[:INPUTS]]

    def _input(self, element: Element) -> Input:
        tensor, column = element.tensor, self._ledger.column
        place = column(f"place {element.path}", torch.int64, tensor.device) if tensor.numel() <= SMALL else None
        total = column(f"sum {element.path}", torch.float32, tensor.device)
        return Input(element.path, element.steps, tuple(tensor.shape), total, place)

    def _sum(self, one: Input, tensor: Tensor, row: int, batch: int) -> None:
        if tensor.device != one.total.values.device or not tensor.is_floating_point():
            return
        torch.sum(tensor, tuple(range(tensor.ndim)), dtype=torch.float32, out=one.total.slots[row])
        one.total.filled[row] = batch
        if one.place is not None and tensor.numel() <= SMALL:
            torch.argmax(tensor.reshape(-1), out=one.place.slots[row])  # a NaN counts as the largest
            one.place.filled[row] = batch

    def _note_loss(self, at: Moment, output: Any, scale: float) -> None:
        loss = output.get("loss") if isinstance(output, Mapping) else output
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not is_plain(loss):
            return
        if self._loss is None or self._loss.values.device != loss.device:
            self._ledger.columns.pop("loss", None)
            self._loss = self._ledger.column("loss", torch.float32, loss.device)
        row = at.batch % self._ledger.rows
        value = loss.detach().reshape(())
        self._loss.slots[row].copy_(value if scale == 1 else value * scale)
        self._loss.filled[row] = at.batch

    # -- samples

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._hazards is None:
            self._hazards = hazards(loss)

    def output(self, at: Moment, output: Any) -> None:
        if at.trace is not None:
            self._scores.look(at, self._batch, self._samples)
            if self._scores.labels.wanted:
                self._scores.labels.open(self._ledger, self._batch, at.batch % self._ledger.rows, at.batch)
        if at.sync and at.run.automatic:
            self._note_loss(at, output, 1 / at.run.accumulate)
            self._ask(at)

    def batch_end(self, at: Moment, output: Any) -> None:
        if not (at.sync and at.run.automatic):
            self._note_loss(at, output, 1)
        self._batch = None
        if at.sampled:
            self._ask(at)

    def end(self, at: Moment) -> None:
        self._ask(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        batch, self._batch = self._batch, None
        found = self._scores.labels.current(batch)
        if found is not None and not at.sampled:
            at.emit(TargetRange(**found, error=f"{type(error).__name__}: {error}"[:200], **at.tags()))
        self._ask(at)

    # -- on the host

    def _ask(self, at: Moment) -> None:
        by_device = list(self._ledger.tensors().values())
        read: dict[str, dict[int, float]] = {}
        filled, sizes = self._ledger.filled(), tuple(self._sizes)

        def keep(values: Mapping[str, Tensor]) -> None:
            read.update(unrolled(values, filled, self._seen.until))

        def judge(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            keep(values)
            return self._judge(at, read, sizes)

        for i, rings in enumerate(by_device):
            at.ask(rings, judge if i == len(by_device) - 1 else keep)

    def _judge(self, at: Moment, read: Mapping[str, Mapping[int, float]], sizes: tuple[int, ...]) -> Iterator[Evidence]:
        seen, tags = self._seen, at.tags()
        losses = {b: v * at.run.accumulate for b, v in read.get("loss", {}).items()}
        if any(name.startswith("sum ") for name in read):
            yield self._finiteness(read, losses, tags)
        yield from self._losses(losses, sizes, at)
        yield from self._labels(read, sizes, at)
        newest = [max(column) for column in read.values() if column]
        if "loss" not in read and self._returned:
            self._returned = False
            reason = "the training step returns no loss"
            yield Unseen(codes=("WD142", "WD143"), reason=reason, **tags)
        yield from self._scores.evidence(at, dict(seen.losses))
        seen.until = max([seen.until, *newest])

    def _finiteness(
        self, read: Mapping[str, Mapping[int, float]], losses: Mapping[int, float], tags: Mapping[str, Any]
    ) -> Finiteness:
        bad = [
            (batch, one, total)
            for one in self._inputs or ()
            for batch, total in read.get(f"sum {one.path}", {}).items()
            if not math.isfinite(total)
        ]
        if not bad:
            return Finiteness(**tags)
        ruined = [b for b in bad if not math.isfinite(losses.get(b[0], 0.0))]
        batch, one, total = min(ruined or bad, key=lambda b: b[0])
        index: tuple[int, ...] = ()
        place = read.get(f"place {one.path}", {}).get(batch)
        if place is not None and math.isnan(total):
            rest, index = int(place), ()
            for size in reversed(one.shape[1:]):
                rest, last = divmod(rest, size)
                index = (last, *index)
            index = (rest, *index)
        if ruined and not self._seen.bad_input[0]:
            self._seen.bad_input = one.path, batch
        value = "NaN" if math.isnan(total) else "inf" if total > 0 else "-inf"
        finite = math.isfinite(losses[batch]) if batch in losses else None
        return Finiteness(batch=batch, path=one.path, value=value, index=index, loss_finite=finite, **tags)

    def _losses(self, losses: Mapping[int, float], sizes: tuple[int, ...], at: Moment) -> Iterator[Evidence]:
        seen, tags = self._seen, at.tags()
        if not losses:
            return
        earlier = [v for _, v in seen.losses if math.isfinite(v)]
        for batch, value in losses.items():
            if len(seen.losses) == RECENT:
                seen.dropped_highest = _larger(seen.dropped_highest, seen.losses[0][1])
            seen.losses.append((batch, value))
            seen.count += 1
            if not math.isfinite(value) and seen.failure is None:
                seen.failure = self._failure(batch, value, earlier, sizes, at)
            elif math.isfinite(value):
                earlier.append(value)
                if seen.failure is not None and not seen.failure.recovered:
                    seen.failure = LossFinite(**{**vars(seen.failure), "recovered": True})
        yield seen.failure or LossFinite(**tags)
        values = tuple(v for _, v in seen.losses)
        yield Losses(
            values=values,
            last=seen.losses[-1][0],
            fresh=len(losses),
            before=seen.count - len(values),
            highest=seen.dropped_highest,
            **tags,
        )

    def _failure(
        self, batch: int, value: float, earlier: list[float], sizes: tuple[int, ...], at: Moment
    ) -> LossFinite:
        usual = Counter(s for s in sizes if s).most_common(1)
        path, bad_batch = self._seen.bad_input
        return LossFinite(
            batch=batch,
            value=value,
            earlier=tuple(earlier[-8:]),
            size=sizes[batch % len(sizes)],
            usual=usual[0][0] if usual else 0,
            bad_input=path if 0 <= bad_batch <= batch else "",
            bad_batch=bad_batch,
            ignored=self._scores.labels.all_ignored(batch),
            precision=at.run.precision,
            hazards=self._hazards or (),
            **at.tags(),
        )

    def _labels(
        self, read: Mapping[str, Mapping[int, float]], sizes: tuple[int, ...], at: Moment
    ) -> Iterator[Evidence]:
        labels: Labels = self._scores.labels
        lows, highs = read.get("label low", {}), read.get("label high", {})
        for batch in lows:
            self._seen.order.append((sizes[batch % len(sizes)], lows[batch], highs[batch]))
            labels.remember(batch, lows[batch], highs[batch])
        if labels.column is None:
            return
        if labels.one_per_sample:
            yield LabelOrder(
                path=labels.path,
                batches=tuple(self._seen.order),
                shuffled=self._scores.shuffled,
                classes=labels.classes,
                **at.tags(),
            )
        found = labels.extremes()
        if found is not None:
            yield TargetRange(**found, **at.tags())


def _larger(a: float, b: float) -> float:
    return b if math.isnan(a) or b > a else a
