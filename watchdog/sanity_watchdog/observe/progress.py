"""One number per batch: the loss, the labels' range, the sums of the inputs. Written on the device, read at samples."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.data import Finiteness, LabelOrder
from ..evidence.progress import Losses, LossFinite
from ..evidence.readings import Unseen
from ..evidence.targets import TargetRange
from . import loaders
from .batches import Step, elements, follow, length_of
from .hazards import hazards
from .labels import Labels
from .ledger import Column, Ledger, number_on_host, unrolled
from .loss_history import RECENT, Seen, batch_of, larger
from .moment import Moment
from .observer import Observer, every_step, loss_of
from .row import Row
from .run import Run
from .sampling import DENSE, SETTLED, STRIDE
from .scores import Scores
from .spoiled import spoiled
from .sums import Sums

FEWEST_ROWS, MOST_ROWS = 128, 1536
"""Batches remembered: enough to reach from one late pair to the next at the default interval, put off where steps are
short, or accumulating up to 7."""


class Progress(Observer):
    """Keeps a ring of numbers per batch on the device, and what it showed so far on the host."""

    codes = ("WD105", "WD110", "WD121", "WD141", "WD142", "WD143", "WD144", "WD145")

    def __init__(self) -> None:
        self._ledger = Ledger(FEWEST_ROWS)
        self._loss: Column | None = None
        self._sums: Sums | None = None
        self._length: tuple[Step, ...] = ()
        self._sizes: list[int] = []
        self._hazards: tuple[str, ...] | None = None
        self._scores = Scores()
        self._seen = Seen()
        self._samples = 0
        self._counted = self._asked = -1
        self._returned = True
        self._over = self._failed = self._on_host = self._in_dict = False
        self._read: dict[int, float] = {}

    def start(self, run: Run, at: Moment) -> None:
        reach = 2 if run.device.type == "cpu" else STRIDE
        rows = min(max(reach * run.every_n_steps * run.accumulate, FEWEST_ROWS), MOST_ROWS)
        self._ledger = Ledger(rows)
        self._sizes = [-1] * rows
        self._scores.shuffled = loaders.shuffles(run.loaders[0]) if len(run.loaders) == 1 else None

    def looks_between(self, run: Run, moment: str) -> bool:
        return moment != "batch" or not self._on_host

    def may_rest(self, at: Moment, row: Row) -> bool:
        return self._on_host and self._in_dict

    def rested(self, at: Moment, first: int, row: Row) -> None:
        self._read.update(enumerate(row.losses, first))
        while len(self._read) > MOST_ROWS:
            del self._read[next(iter(self._read))]

    # -- every batch

    @every_step
    def batch(self, at: Moment, batch: Any) -> None:
        if at.sampled or at.batch < SETTLED or not self._on_host:
            self._note_batch(at)  # later, where a loss can be looked at, only when it is not finite

    def _note_batch(self, at: Moment) -> None:
        if self._sums is None:
            found = elements(at.data)
            self._sums = Sums(self._ledger, found)
            self._length = length_of(found)
        row = at.batch % self._ledger.rows
        length = follow(at.data, self._length) if self._length else None
        self._sizes[row] = size = len(length) if length is not None and length.ndim else -1
        self._samples += max(0, size) * (at.batch - self._counted)
        self._counted = at.batch
        self._sums.note(at.data, row, at.batch)
        self._scores.labels.note(at.data, row, at.batch)

    def _note_loss(self, at: Moment, output: Any, scale: float) -> None:
        loss = loss_of(output)
        number = None if loss is None else number_on_host(loss)
        self._on_host = number is not None
        if number is not None:
            self._note_number(at, number * scale)
        elif loss is not None:
            if self._loss is None or self._loss.values.device != loss.device:
                self._ledger.columns.pop("loss", None)
                self._loss = self._ledger.column("loss", torch.float32, loss.device)
            row = at.batch % self._ledger.rows
            self._loss.filled[row] = at.batch
            value = loss.detach() if scale == 1 else loss.detach() * scale
            self._loss.slots[row].copy_(value if value.ndim == 0 else value.reshape(()))

    def _note_number(self, at: Moment, number: float) -> None:
        self._read[at.batch] = number
        if len(self._read) > MOST_ROWS:
            del self._read[next(iter(self._read))]
        if not math.isfinite(number):
            self._note_batch(at)  # the batch is still there: what is in it explains the loss

    # -- samples

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if self._hazards is None and at.sampled:
            self._hazards = hazards(loss, at.trace is not None and at.trace.causal)
        self._look_behind(at, loss)

    def _look_behind(self, at: Moment, loss: Tensor | None) -> None:
        if at.sync and loss is not None and self._seen.failure is None and self._seen.spoiled is None:
            found = spoiled(loss, at.run, not at.batch)
            self._seen.spoiled = None if found is None else (at.batch, found)

    def output(self, at: Moment, output: Any) -> None:
        if at.stage != "train":
            return
        if at.trace is not None:
            self._scores.look(at, self._samples)
            if self._scores.labels.wanted:
                self._scores.labels.open(self._ledger, at.data, at.batch % self._ledger.rows, at.batch)
            if at.trace.followers is not None:
                self._seen.culprits[at.batch] = at.trace.followers.culprits.behind(loss_of(output))
        if at.sync and at.run.automatic:
            self._look_behind(at, loss_of(output))
            self._note_loss(at, output, 1 / at.run.accumulated(at.batch))
            self._ask(at)

    @every_step
    def batch_end(self, at: Moment, output: Any) -> None:
        self._in_dict = type(output) is dict and type(output.get("loss")) is Tensor
        if not (at.sync and at.run.automatic):
            self._note_loss(at, output, 1)
        if at.sampled and (at.attempt <= DENSE or at.batch > self._asked + 1):
            self._asked = at.batch
            self._ask(at)

    def end(self, at: Moment) -> None:
        self._over = True
        self._ask(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        self._over = self._failed = True
        found = self._scores.labels.current(at.data, at.batch)
        if found is not None and not at.sampled:
            at.emit(TargetRange(**found, **at.tags()))
        self._ask(at)

    # -- on the host

    def _ask(self, at: Moment) -> None:
        by_device = list(self._ledger.tensors().values())
        read = {"loss": self._read} if self._read else {}
        self._read = {}
        filled, sizes = self._ledger.filled(), tuple(self._sizes)

        def keep(values: Mapping[str, Tensor]) -> None:
            read.update(unrolled(values, filled, self._seen.until))

        def judge(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            keep(values)
            return self._judge(at, read, sizes)

        for rings in by_device[:-1]:
            at.ask(rings, keep)
        at.ask(by_device[-1] if by_device else {}, judge)

    def _judge(self, at: Moment, read: Mapping[str, Mapping[int, float]], sizes: tuple[int, ...]) -> Iterator[Evidence]:
        seen, tags = self._seen, at.tags()
        losses = {b: v * at.run.accumulated(b) for b, v in read.get("loss", {}).items()}
        if any(name.startswith("sum ") for name in read):
            yield self._finiteness(read, losses, tags)
        yield from self._labels(read, sizes, at)  # a loss without any label has its cause there
        yield from self._losses(losses, sizes, at)
        newest = [max(column) for column in read.values() if column]
        if self._returned and not (seen.count or "loss" in read):
            self._returned = False
            reason = "no training step has ended" if self._failed else "the training step returns no loss"
            yield Unseen(codes=("WD142", "WD143"), reason=reason, **tags)
        yield from self._scores.evidence(at, dict(seen.losses))
        seen.until = max([seen.until, *newest])

    def _finiteness(
        self, read: Mapping[str, Mapping[int, float]], losses: Mapping[int, float], tags: Mapping[str, Any]
    ) -> Finiteness:
        bad = self._sums.bad(read) if self._sums is not None else []
        if not bad:
            return Finiteness(**tags)
        ruined = [b for b in bad if not math.isfinite(losses.get(b.batch, 0.0))]
        first = (ruined or bad)[0]
        if ruined and not self._seen.bad_input[0]:
            self._seen.bad_input = first.path, first.batch
        value = "NaN" if math.isnan(first.total) else "inf" if first.total > 0 else "-inf"
        finite = math.isfinite(losses[first.batch]) if first.batch in losses else None
        return Finiteness(
            batch=first.batch, path=first.path, value=value, index=first.index, loss_finite=finite, **tags
        )

    def _losses(self, losses: Mapping[int, float], sizes: tuple[int, ...], at: Moment) -> Iterator[Evidence]:
        seen, tags = self._seen, at.tags()
        if not losses:
            return
        if seen.failure is not None or not all(map(math.isfinite, losses.values())):
            self._follow_failure(losses, sizes, at)
        kept = [*seen.losses, *losses.items()]
        for _, gone in kept[:-RECENT]:
            seen.dropped_highest = larger(seen.dropped_highest, gone)
        seen.losses.extend(losses.items())
        seen.count += len(losses)
        may_recover = at.run.scaler is not None and not self._over and seen.losses[-1][0] == batch_of(seen.failure)
        yield LossFinite(**tags) if seen.failure is None or may_recover else seen.failure
        values = tuple(v for _, v in seen.losses)
        yield Losses(
            values=values,
            last=seen.losses[-1][0],
            fresh=len(losses),
            before=seen.count - len(values),
            highest=seen.dropped_highest,
            over=self._over,
            clipped=at.run.clip is not None,
            **tags,
        )

    def _follow_failure(self, losses: Mapping[int, float], sizes: tuple[int, ...], at: Moment) -> None:
        """The first loss that is not finite, and whether a later one is."""
        seen = self._seen
        earlier = [v for _, v in seen.losses if math.isfinite(v)]
        for batch, value in losses.items():
            if not math.isfinite(value) and seen.failure is None:
                seen.failure = self._failure(batch, value, earlier, sizes, at)
            elif math.isfinite(value):
                earlier.append(value)
                if seen.failure is not None and not seen.failure.recovered:
                    seen.failure = LossFinite(**{**vars(seen.failure), "recovered": True})

    def _failure(
        self, batch: int, value: float, earlier: list[float], sizes: tuple[int, ...], at: Moment
    ) -> LossFinite:
        usual = Counter(s for s in sizes if s > 0).most_common(1)
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
            hazards=(*self._scores.weightless, *(self._hazards or ())),
            culprit=self._seen.culprits.get(batch),
            spoiled=self._seen.spoiled_at(batch),
            **at.tags(),
        )

    def _labels(
        self, read: Mapping[str, Mapping[int, float]], sizes: tuple[int, ...], at: Moment
    ) -> Iterator[Evidence]:
        labels: Labels = self._scores.labels
        lows, highs = read.get("label low", {}), read.get("label high", {})
        for batch in lows:
            size = max(0, min(sizes[batch % len(sizes)], labels.counts[batch % len(labels.counts)]))
            self._seen.order.append((size, lows[batch], highs[batch]))
            labels.remember(batch, lows[batch], highs[batch])
        if labels.column is None:
            return
        if labels.one_per_sample:
            yield LabelOrder(
                path=labels.path,
                batches=tuple(self._seen.order),
                shuffled=self._scores.shuffled,
                classes=labels.classes,
                per_epoch=at.run.batches_per_epoch,
                **at.tags(),
            )
        found = labels.extremes()
        if found is not None:
            yield TargetRange(**found, **at.tags())
