"""Supervised loss calls at the samples: their mean, what chance costs, and whether the scores differ at all."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.progress import Learning, Score
from ..evidence.readings import Unseen
from .batches import Element, elements
from .calls import LossCall
from .labels import Labels
from .loss_statistics import LEAST_LOG
from .moment import Moment
from .observer import is_plain
from .sampling import DENSE

CLASSIFYING = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
SQUARED = ("mse_loss",)
KEPT = 24
"""Samples per loss call, the first one included."""
CALLS = 4
"""Loss calls followed."""
CANDIDATES = 4
"""Tensors of the batch that are compared with a target."""
FEWEST, ROWS, COLUMNS = 4, 256, 4096
"""Rows and columns of scores looked at per call; fewer rows than the first number show no spread."""
MOST_CLASSES = 1 << 16
PROGRESS = ("WD110", "WD141", "WD144", "WD145")


@dataclass
class Followed:
    """One loss call, by function and line: its samples and the batch of the last one."""

    classes: int
    scores: list[Score] = field(default_factory=list)
    batch: int = -1


class Scores:
    """Follows up to ``CALLS`` loss calls on labels or targets that belong to the batch.

    Attributes:
        labels: the labels of the first classification loss.
        shuffled: does the loader shuffle?
        weightless: of the first sample, a mean with class weights of which some are 0, in words.
    """

    def __init__(self) -> None:
        self.labels = Labels()
        self.shuffled: bool | None = None
        self.weightless: tuple[str, ...] = ()
        self._calls: dict[tuple[str, str], Followed] = {}
        self._peak = self._rate = math.nan
        self._looked = 0

    def look(self, at: Moment, samples: int) -> None:
        """Queue what the calls of this step show; ``samples`` have been seen so far."""
        if not self._looked and at.trace is not None:
            named = (f"{c.name} with class weights of 0, a mean over nothing" for c in at.trace.calls if _weightless(c))
            self.weightless = tuple(named)[:1]
        self._looked += 1
        done: set[tuple[str, str]] = set()
        found = [e for e in elements(at.data) if e.dense]
        for call in at.trace.calls if at.trace is not None else ():
            key = call.name, call.where
            if key in done or len(done) == CALLS or not _readable(call) or self._just_looked(at, key):
                continue
            done.add(key)
            self._ask(at, call, found, samples)

    def _just_looked(self, at: Moment, key: tuple[str, str]) -> bool:
        return at.attempt > DENSE and key in self._calls and self._calls[key].batch == at.batch - 1

    def _ask(self, at: Moment, call: LossCall, found: list[Element], samples: int) -> None:
        classes = _classes(call)
        owner = _owner(call.target, found)
        near = [] if owner is not None else _candidates(call.target, found)
        kind = at.run.device.type
        with torch.no_grad(), torch.autocast(kind, enabled=False), torch._C.DisableTorchFunction():
            numbers = measured(call, classes)
            wanted = call.target.reshape(-1)
            numbers |= {f"equal {i}": (e.tensor.reshape(-1) == wanted).all() for i, e in enumerate(near)}
        if call.name not in SQUARED and owner is not None:
            self.labels.found(owner, call, classes)
        keep = LossCall(call.name, call.where, {k: _shape_only(v) for k, v in call.arguments.items()})
        shells = [Element(e.path, e.steps, _shape_only(e.tensor)) for e in near]
        attempt, number, owned = at.attempt, at.batch, owner is not None

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            equal = [e for i, e in enumerate(shells) if bool(values[f"equal {i}"])]
            if equal and keep.name not in SQUARED:
                self.labels.found(equal[0], keep, classes)
            integers = keep.name in CLASSIFYING and not bool(values["constant"]) and not bool(values["in_order"])
            if owned or equal or integers:
                self._keep(keep, classes, values, attempt, samples, number)
            return ()

        at.ask(numbers, then)

    def _keep(
        self, call: LossCall, classes: int, values: Mapping[str, Tensor], attempt: int, samples: int, number: int
    ) -> None:
        key = call.name, call.where
        if key not in self._calls and len(self._calls) == CALLS:
            return
        followed = self._calls.setdefault(key, Followed(0 if call.name in SQUARED else classes))
        score = Score(
            attempt=attempt,
            samples=samples,
            value=float(values["value"]),
            chance=float(values["chance"]),
            entropy=float(values["entropy"]),
            spread=float(values["spread"]),
        )
        if len(followed.scores) == KEPT:
            del followed.scores[1]
        followed.scores.append(score)
        followed.batch = number

    def evidence(self, at: Moment, losses: Mapping[int, float]) -> Iterator[Evidence]:
        """What is known by now; ``losses`` are the returned ones by batch."""
        rate = _rate(at)
        rising = rate > self._rate * 1.0001
        self._rate, self._peak = rate, rate if not self._peak >= rate else self._peak
        if not self._calls and self._looked > 1:
            yield Unseen(codes=PROGRESS, reason="no loss function got labels or targets of the batch", **at.tags())
        for (function, where), followed in self._calls.items():
            last = followed.scores[-1]
            returned = losses.get(followed.batch, math.nan)
            same = abs(returned - last.value) <= 1e-3 * abs(last.value)
            recent = list(losses.values())[-64:]
            yield Learning(
                function=function,
                where=where,
                classes=followed.classes,
                scores=tuple(followed.scores),
                recent=sum(recent) / len(recent) if same else math.nan,
                rate=rate,
                peak=self._peak,
                rising=rising,
                resumed=at.run.resumed,
                per_epoch=at.run.batches_per_epoch,
                **at.tags(),
            )


def measured(call: LossCall, classes: int) -> dict[str, Tensor]:
    """Mean loss, chance, entropy of the labels, largest deviation of a score between samples: 0-d, on the device."""
    scores, target = call.input.detach(), call.target.detach()
    value = call.value.detach().float()
    value = value.mean() if value.numel() > 1 else value.reshape(())
    if call.arguments.get("reduction") == "sum":
        soft = call.name in CLASSIFYING and target.shape == scores.shape
        value = value / (len(target) if soft else target.numel())
    none = value.new_full((), math.nan)
    found = {"value": value, "entropy": none, "constant": (target == target.reshape(-1)[0]).all()}
    found["in_order"] = torch.zeros_like(found["constant"])
    if call.name in SQUARED:
        return found | {"chance": target.float().var(correction=0), "spread": none}
    found["chance"] = value.new_full((), math.log(classes))
    rows = _rows(scores, call.name in CLASSIFYING)
    if call.name == "binary_cross_entropy":  # in nats, as all scores
        rows = rows.log().clamp_min(LEAST_LOG) - torch.log1p(-rows).clamp_min(LEAST_LOG)
    found["spread"] = rows.std(0, correction=0).amax() if len(rows) >= FEWEST else none
    if call.name in BINARY:
        share = target.float().mean()
        found["entropy"] = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
    elif not target.is_floating_point():
        flat = target.reshape(-1)
        found["in_order"] = (flat == torch.arange(len(flat), device=flat.device)).all()
        if classes <= MOST_CLASSES:
            inside = (flat >= 0) & (flat < classes) & (flat != call.arguments.get("ignore_index", -100))
            counts = value.new_zeros(classes).index_put((flat.clamp(0, classes - 1),), inside.float(), accumulate=True)
            shares = counts / counts.sum().clamp(min=1)
            found["entropy"] = -torch.xlogy(shares, shares).sum()
    return found


def _rows(scores: Tensor, by_class: bool) -> Tensor:
    """A bounded sample of the scores as ``(samples, scores)``."""
    if by_class and scores.ndim > 1:
        scores = scores.movedim(1, -1)
        rows = scores.reshape(-1, scores.shape[-1])
    else:
        rows = scores.reshape(len(scores), -1)
    rows = rows[:: max(1, len(rows) // ROWS)][:ROWS, :COLUMNS]
    return rows.float()


def _readable(call: LossCall) -> bool:
    """Is it a supervised loss without weights, with values to look at?"""
    scores, target = call.input, call.target
    weighted = any(call.arguments.get(k) is not None for k in ("weight", "pos_weight"))
    if call.traced or call.error or not all(is_plain(t) for t in (scores, target, call.value)):
        return False
    if not scores.requires_grad or not scores.ndim or not target.numel() or not scores.numel():
        return False
    if call.name in CLASSIFYING:
        return _classes(call) > 1 and not (weighted and call.arguments.get("reduction", "mean") != "mean")
    return call.name in (*BINARY, *SQUARED) and not weighted and target.ndim > 0


def _weightless(call: LossCall) -> bool:
    weight: Any = call.arguments.get("weight")
    mean = call.arguments.get("reduction", "mean") == "mean" and call.name in CLASSIFYING
    return mean and is_plain(weight) and weight.ndim == 1 and bool((weight == 0).any())


def _classes(call: LossCall) -> int:
    if call.name not in CLASSIFYING:
        return 2
    return int(call.input.shape[1 if call.input.ndim > 1 else 0])


def _owner(target: Tensor, found: list[Element]) -> Element | None:
    """The batch's tensor that ``target`` is, or is a view of with all its elements."""
    place = target.untyped_storage().data_ptr()
    for e in found:
        if e.tensor.numel() == target.numel() and e.tensor.untyped_storage().data_ptr() == place:
            return e
    return None


def _candidates(target: Tensor, found: list[Element]) -> list[Element]:
    fits = (e for e in found if e.tensor.numel() == target.numel() and e.tensor.device == target.device)
    return list(fits)[:CANDIDATES]


def _shape_only(value: Any) -> Any:
    """A tensor without its memory, so that nothing of the user's stays alive."""
    return torch.empty_like(value, device="meta") if isinstance(value, Tensor) else value


def _rate(at: Moment) -> float:
    """Largest learning rate, NaN where one of them lies on a device."""
    rates = [group.get("lr", math.nan) for optimizer in at.run.optimizers for group in optimizer.param_groups]
    if not rates or any(isinstance(r, Tensor) and (r.device.type != "cpu" or r.numel() != 1) for r in rates):
        return math.nan
    return max(float(r) for r in rates)
