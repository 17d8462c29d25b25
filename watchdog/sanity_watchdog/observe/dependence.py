"""What the scores depend on: one backward of one row of them, through the first step's own graph."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..evidence.dependence import Dependence, PositionWeights, Reordered, Suspect, UnusedResult
from .batches import Samples, elements
from .calls import Frontier, LossCall, Trace
from .company import COUNTS, astray, company, overshadowed
from .entering import by_position
from .first_loss import FirstLossObserver
from .latents import DRAWN, explain
from .lineage import UNKNOWN
from .loaders import drawn, gathers, shuffles
from .moment import Moment
from .nodes import MOST, nodes
from .observer import is_plain
from .obstacles import NORM, batch_as_time, mixing_on_purpose, obstacle
from .sequences import Entry, Row, row_of, sample_axis
from .suspects import MOVED, RESHAPED, TIME_FIRST, Seen, behind

CLASSIFYING = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits")
REGRESSING = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy")
"""Beside these a second backward was measured to change nothing; sharded ones communicate in their hooks."""

UNSURE = "ready batches, or items of several rows: the axis of the samples is not known"
IN_ORDER = "rows that are not shuffled were made one sequence"


class DependenceWatch(FirstLossObserver):
    """Asks once, before the first backward frees the graph, and only where a second one is known to change nothing."""

    codes = ("WD112", "WD131", "WD132", "WD133", "WD134", "WD135", "WD136")

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        found = self._look(at, loss)
        at.emit(found)
        attending = at.trace.attending if at.trace is not None else None
        if attending is not None:
            weighing = attending.weighing
            unmasked, padding = attending.without_mask() if math.isnan(found.later) else ("", 0.0)
            masked, tags = weighing.masked(), at.tags()
            at.emit(PositionWeights(across=weighing.across, masked=masked, unmasked=unmasked, padding=padding, **tags))
        if at.trace is not None and at.trace.followed:
            torn = next((s for s in at.trace.suspects if s.kind == RESHAPED), Seen("", "", ""))
            (before, after), tags = torn.shapes, at.tags()
            at.emit(Reordered(operation=torn.operation, where=torn.where, before=before, after=after, **tags))
            operation, where, twin = at.trace.unused or ("", "", False)
            at.emit(UnusedResult(operation=operation, where=where, twin=twin, **tags))

    def _look(self, at: Moment, loss: Tensor) -> Dependence:
        trace, tags = at.trace, at.tags()
        attending = trace.attending if trace is not None else None
        if attending is not None:
            tags |= {
                "inverted": attending.turned_round(),
                "lone": attending.lone,
                "placed": attending.placed_at(),
                "torn": attending.torn,
            }
        if trace is None or not trace.followed:
            compiled = trace is not None and trace.compiled
            return Dependence(reason="compiled step" if compiled else "the step was not followed", **tags)
        if at.run.strategy not in STRATEGIES:
            return Dependence(reason=f"strategy {at.run.strategy}", **tags)
        call, told = _call(trace, loss), dict(tags)
        if call is None or not trace.frontier:
            return Dependence(**tags)
        made_of = drawn(at.run.loaders, at.run.changes_batches)
        samples, count = Samples(at.data, made_of).count, made_of.count
        one_each = call.target.numel() == samples and not samples > count > 0
        fits = samples == count or one_each or (made_of.stacked and samples < count)
        sure = fits and any(map(gathers, at.run.loaders[:1]))
        in_order = attending is not None and attending.together.in_order and not any(map(shuffles, at.run.loaders))
        tags |= {"function": call.name, "where": call.where, "samples": samples, "shape": tuple(call.input.shape)}
        graph = list(nodes(call.input))
        tags |= {
            "sequential": _sequential(trace, samples, at.run.module) if sure and not in_order else "",
            "suspects": _named(trace.suspects, at.run.module),
        }
        reason = "a graph of more than 20,000 nodes" if len(graph) >= MOST else obstacle(trace, graph, loss)
        if reason:
            return Dependence(reason=reason, **tags)
        ends = {f.operation.out.grad_fn for f in trace.frontier}
        if ends.isdisjoint(graph):
            if call.name in REGRESSING or trace.probed:  # such as features of what a generator makes
                return Dependence(**told)
            if trace.left:
                return Dependence(reason="data of the batch were read to the host, where they lose their track", **tags)
            if trace.known.get(call.input) in (None, UNKNOWN):
                reason = "values of unknown origin enter the scores (scripted, transformed, cached, from a thread)"
                return Dependence(reason=reason, **tags)
            return Dependence(connected=False, **tags)
        meant = attending.together.reason if attending is not None else ""
        meant = IN_ORDER if in_order else meant
        meant = meant if sure else UNSURE
        mixing = meant or mixing_on_purpose(call, graph, samples, elements(at.data), at.run.module, trace)
        try:
            found = self._ask(trace, call, samples, set(graph), mixing)
        except RuntimeError as error:
            if "second time" not in str(error):
                raise
            return Dependence(reason="the step has already gone back through this graph", **tags)
        if found.pop("alone") and mixing in ("", NORM):
            time_first = (s.operation for s in tags["suspects"] if s.kind == TIME_FIRST)
            tags["sequential"] = tags["sequential"] or next(time_first, "")
        mixing = "" if mixing == NORM and "astray" in found else mixing
        if "guilty" in found:
            tags["suspects"] = _named(found.pop("guilty"), at.run.module)
        if trace.unused is not None and trace.unused[0] == "masked_fill":
            tags["suspects"] += (Suspect("dropped", "masked_fill", where=trace.unused[1]),)
        return Dependence(connected=True, mixing_reason=mixing, **found, **tags)

    def _ask(self, trace: Trace, call: LossCall, samples: int, graph: set[Any], mixing: str) -> dict[str, Any]:
        ends = [f for f in trace.frontier if f.operation.out.grad_fn in graph]
        reached = [f for f in ends if f.data.numel() and f.operation.out.numel()]
        row = row_of(call, reached, samples)
        with torch.enable_grad():  # a step may go back while it is off
            scores = call.input[row.index]
        gradients = _gradients(scores, reached)
        found: dict[str, Any] = {"scored": _scored(call, samples), "alone": _reaches_nothing(call, gradients)}
        told: Frontier | None = None
        with torch.no_grad():
            first = company(call, row.index, reached, gradients, samples)
            if first is not None:
                row = replace(row, sample=first.own)
                found |= {"others": len(first.others), "own": first.own}
                found |= {"sharing": len(first.others) / max(samples - 1, 1), "influence": first.influence}
            for place, gradient in zip(reached, gradients, strict=True):
                if gradient is None or not is_plain(gradient):
                    continue
                if first is None:
                    self._measure(found, row, place, gradient.detach().abs().float(), samples)
                if row.entry is not None and place is row.entry.place:
                    self._look_ahead(found, trace, row, row.entry, gradient)
                    codes = trace.followers.codes.drawn if "guilty" in found and trace.followers is not None else ()
                    if codes and explain(codes, row, scores, _seed(scores), gradient, samples):
                        told = place
            if told is not None:  # as an encoder is; what enters a decoder still has to be told apart
                del found["later"], found["guilty"]
                found["causal_reason"] = DRAWN
                others = {p: g for p, g in zip(reached, gradients, strict=True) if p is not told and g is not None}
                entry = row_of(call, others, samples).entry
                if entry is not None and entry.shift and is_plain(others[entry.place]):
                    self._look_ahead(found, trace, row, entry, others[entry.place])
                    found["causal_reason"] = "" if "later" in found else DRAWN
        if row.entry is not None and row.entry.shift:
            found |= {"position": row.position, "length": row.length, "before": row.entry.offset}
        picked = any(node.name().startswith("IndexBackward") for node in graph)
        moved = any(s.kind == MOVED for s in trace.suspects)
        if first is not None and (first.others or moved) and mixing in ("", NORM) and not picked:
            again = _gradients(call.input[row.another], reached)
            with torch.no_grad():
                second = company(call, row.another, reached, again, samples)
            if second is not None:
                found["others"] = max(len(first.others), len(second.others))
                lost = overshadowed((first, second)) if mixing else astray((first, second), moved)
                if lost is not None:
                    found |= {"own": lost.own, "others": len(lost.others), "astray": lost.strongest}
                    found["single"] = first.others == second.others == lost.others[:1]
        return found

    def _look_ahead(self, found: dict[str, Any], trace: Trace, row: Row, entry: Entry, gradient: Tensor) -> None:
        felt = by_position(entry, gradient, row.sample)
        if felt is None or len(felt) < row.position + 2:
            return
        earlier, later = float(felt[: row.position + 1].amax()), float(felt[row.position + 1 :].amax())
        if not entry.shift:
            trace.looks_ahead = later > COUNTS * earlier
        elif earlier > 0:
            found["later"] = later / earlier
            if later > COUNTS * earlier:
                found["guilty"] = behind(trace.suspects, entry.place.operation.out)

    def _measure(self, found: dict[str, Any], row: Row, place: Frontier, mass: Tensor, samples: int) -> None:
        shapes = zip(mass.shape[:2], place.data.shape[:2], strict=False)
        axes = [a for a, sizes in enumerate(shapes) if sizes == (samples, samples)]
        if axes and samples > 1 and row.sample >= 0:
            sharing, influence = min(_others(mass, axis, row.sample) for axis in axes)
            if not math.isnan(sharing) and not found.get("sharing", -1.0) >= sharing:
                found |= {"sharing": sharing, "influence": influence}


def _named(seen: Sequence[Seen], module: torch.nn.Module) -> tuple[Suspect, ...]:
    return tuple(s.named(module) for s in seen if not s.is_cleared(module))


def _scored(call: LossCall, samples: int) -> int:
    """How many samples have scores of their own; 0 where the scores do not show it."""
    if call.rows is not None:
        return int(torch.bincount(call.rows.flatten()).count_nonzero())
    axis = sample_axis(call, samples)
    return 0 if axis is None else call.input.shape[axis]


def _sequential(trace: Trace, samples: int, module: torch.nn.Module) -> str:
    """The function that takes the samples for steps, of those that the batch enters first and of those behind."""
    attending = trace.attending
    return batch_as_time(trace.frontier, samples, module) or (attending.recurring.over_samples if attending else "")


def _gradients(scores: Tensor, places: Sequence[Frontier]) -> tuple[Tensor | None, ...]:
    """Of differently weighted scores of one row, where data entered; the graph is kept."""
    outs = [p.operation.out for p in places]
    return torch.autograd.grad(scores, outs, _seed(scores), retain_graph=True, allow_unused=True)


def _seed(scores: Tensor) -> Tensor:
    seed = torch.cos(torch.arange(scores.numel(), device=scores.device, dtype=torch.float32))
    return seed.reshape(scores.shape).to(scores.dtype)


def _reaches_nothing(call: LossCall, gradients: Sequence[Tensor | None]) -> bool:
    """Does a row of the scores depend on no sample at all, its own included, although its last layer is not zero?"""
    weights = [call.head] if call.head is not None else []
    values = [t.detach() for t in (*weights, *gradients) if t is not None]
    if not all(map(is_plain, values)) or any(not bool((w != 0).any()) for w in values[: len(weights)]):
        return False
    return len(values) > len(weights) and not any(bool((g != 0).any()) for g in values[len(weights) :])


def _others(mass: Tensor, axis: int, sample: int) -> tuple[float, float]:
    """Share of the other samples with an influence, and the largest one, relative to the sample's own."""
    each = mass.movedim(axis, 0).flatten(1).amax(1) if mass.ndim > 1 else mass
    own = float(each[sample])
    if not own > 0:
        return math.nan, math.nan
    others = torch.cat([each[:sample], each[sample + 1 :]]) / own
    return float((others > COUNTS).float().mean()), float(others.amax())


def _call(trace: Trace, loss: Tensor) -> LossCall | None:
    """The first supervised call that the step's loss depends on, of labels if there is one.

    Another training within the step is no part of it.
    """
    behind = list(nodes(loss))
    inside = None if len(behind) >= MOST else set(behind)
    calls = sorted((c for c in trace.calls if _supervised(c)), key=lambda c: c.name in REGRESSING)
    return next((c for c in calls if inside is None or getattr(c.value, "grad_fn", None) in inside), None)


def _supervised(call: LossCall) -> bool:
    """Does it compare scores that have a graph with labels that differ?"""
    scores, target = call.input, call.target
    if call.name not in (*CLASSIFYING, *REGRESSING) or call.traced or call.error:
        return False
    if not is_plain(scores) or not is_plain(target):
        return False
    if scores.grad_fn is None or not scores.ndim or scores.numel() < 2 or target.numel() < 2:
        return False
    return not bool((target == target.reshape(-1)[0]).all())
