"""Targets that the step makes itself: one constant for everything, or one label of the batch repeated."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.data import MadeTargets
from .batches import Element, elements
from .calls import LossCall
from .holding import held_by
from .moment import Moment
from .objective import bias_behind
from .observer import Observer, in_samples, is_plain, loss_of

CLASSIFYING = ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "binary_cross_entropy")
KEPT = 64
"""Samples remembered."""


class MadeTargetsObserver(Observer):
    """Follows the only loss call of a step whose targets owe nothing to the batch."""

    codes = ("WD110",)

    def __init__(self) -> None:
        self._seen: list[tuple[int, float, float]] = []
        self._key = ("", "")
        self._over = False

    @in_samples
    def output(self, at: Moment, output: Any) -> None:
        if self._over or at.stage != "train" or at.trace is None:
            return
        calls = [c for c in at.trace.calls if not c.traced and not c.error]
        found = [e for e in elements(at.data) if e.dense and e.tensor.ndim]
        repeated = next((pair for c in calls if (pair := _repeats(c, found))), None)
        if repeated is not None:
            self._ask_repeated(at, *repeated)
        elif len(calls) == 1 and at.run.automatic and self._only(at, calls[0], loss_of(output)):
            self._ask(at, calls[0])
        else:
            self._over = True

    def _only(self, at: Moment, call: LossCall, loss: Tensor | None) -> bool:
        """Is it all that the step minimises, on targets of its own, with a bias that can answer them alone?"""
        target, scores, value = call.target, call.input, call.value
        key = call.name, call.where
        if call.name not in CLASSIFYING or not (is_plain(target) and is_plain(scores) and is_plain(value)):
            return False
        if loss is None or loss.grad_fn is not value.grad_fn or self._key not in (("", ""), key):
            return False
        self._key = key
        if target.numel() and not self._seen:
            made = call.outside and at.trace is not None and not at.trace.left
            return made and _answers(at, call, bias_behind(scores))
        return bool(target.numel())

    def _ask(self, at: Moment, call: LossCall) -> None:
        low, high = torch.aminmax(call.target.detach())
        size, tags = call.target.numel(), at.tags()

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            self._seen.append((size, float(values["low"]), float(values["high"])))
            del self._seen[:-KEPT]
            if float(values["low"]) != float(values["high"]):
                self._over = True
            yield MadeTargets(path=call_name, where=where, batches=tuple(self._seen), **tags)

        call_name, where = call.name, call.where
        at.ask({"low": low, "high": high}, then)

    def _ask_repeated(self, at: Moment, call: LossCall, element: Element) -> None:
        low, high = torch.aminmax(element.tensor.detach())
        path, where, size, tags = element.path, call.where, len(call.target), at.tags()
        self._over = True

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            batch = (size, float(values["low"]), float(values["high"]))
            yield MadeTargets(path=path, where=where, batches=(batch,), repeated=True, **tags)

        at.ask({"low": low, "high": high}, then)


def _answers(at: Moment, call: LossCall, bias: Tensor | None) -> bool:
    """Can this bias alone move each score of the call as it likes? One for all candidates of a softmax cancels."""
    if bias is None or not any(p is bias for p in held_by(*at.run.optimizers)):
        return False
    classes = call.input.shape[1] if call.input.ndim > 1 else 0
    return call.name not in CLASSIFYING[:2] or bias.numel() == classes


def _repeats(call: LossCall, found: list[Element]) -> tuple[LossCall, Element] | None:
    """The call and the tensor of the batch, one element of which is the target of every sample."""
    target = call.target
    if not isinstance(target, Tensor) or not is_plain(target) or target.ndim != 1 or len(target) < 2:
        return None
    if target.layout is not torch.strided or target.stride(0) != 0:
        return None
    place = target.untyped_storage().data_ptr()
    fits = (e for e in found if e.tensor.shape == target.shape and e.tensor.untyped_storage().data_ptr() == place)
    return next(((call, e) for e in fits if e.tensor.stride(0) != 0), None)
