"""Do predictions equal the targets that a loss compares them with, although these differ from place to place?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..evidence.base import Evidence
from ..evidence.targets import Likeness
from .bounded import LIMIT, class_axis, thinned
from .calls import LossCall
from .leaves import leaves
from .loss_kinds import DISTANCES
from .moment import Moment
from .nodes import MOST, nodes
from .observer import Observer, in_samples, is_plain, loss_of

TRIPLET = "triplet_margin_loss"
LINES = 8
"""Loss calls that are followed."""
NEAR, VARIED = 1e-6, 1e-3
"""Largest difference, which is rounding of float32 in a softmax, and smallest deviation of targets that tell anything,
both relative to the largest target."""
FEWEST, SLACK = 8, 0.5
"""Fewest samples of a contrastive loss, and by how much cosines may be rounded more: a product and two lengths."""


@dataclass
class _Seen:
    """How often a call's predictions equalled its targets, each time so far."""

    samples: int = 0
    exact: bool = True


class LikenessWatch(Observer):
    """Follows a loss call until its predictions and targets differ for the first time."""

    codes = ("WD114",)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen | None] = {}

    @in_samples
    def output(self, at: Moment, output: object) -> None:
        for call in at.trace.calls if at.trace is not None and at.stage == "train" else ():
            key = call.name, call.where
            if self._seen.get(key, _Seen()) is None or (key not in self._seen and len(self._seen) == LINES):
                continue
            if (call.given and not _is_chosen(call)) or (key in self._seen and not _counts(at, call, loss_of(output))):
                self._seen[key] = None  # a constraint that is met by construction, or a measurement
                continue
            with torch.no_grad(), torch.autocast(at.run.device.type, enabled=False):
                pair, positives = _pair(call), _positives(call)
                if pair is not None:
                    given, wanted = (thinned(t).float() for t in pair)
                    numbers = (given - wanted).abs().amax(), wanted.std(correction=0), wanted.abs().amax()
                    self._ask(at, call, torch.stack(numbers))
                elif positives is not None:
                    self._ask(at, call, positives, views=True)

    def _ask(self, at: Moment, call: LossCall, numbers: Tensor, views: bool = False) -> None:
        key, tags, attempt = (call.name, call.where), at.tags(), at.attempt

        def read(values: Mapping[str, Tensor]) -> Iterator[Evidence]:
            apart, spread, largest = values["likeness"].tolist()
            seen = self._seen.setdefault(key, _Seen())
            if seen is not None and spread > VARIED * largest and apart <= NEAR * largest:
                seen.samples += 1
                seen.exact &= apart == 0
            else:
                self._seen[key] = seen = None
            yield Likeness(
                function=key[0],
                where=key[1],
                samples=0 if seen is None else seen.samples,
                exact=seen is not None and seen.exact,
                attempt=attempt,
                views=views,
                **tags,
            )

        at.ask({"likeness": numbers}, read)


def _is_chosen(call: LossCall) -> bool:
    """Are its targets classes or candidates? No parameter goes into those."""
    return call.name == "cross_entropy" and isinstance(call.target, Tensor) and not call.target.is_floating_point()


def _positives(call: LossCall) -> Tensor | None:
    """How far the scores (N, k) of the labels are from one number that is the highest of every row, (3,).

    So they are where contrastive losses compare unit vectors with themselves. None where there are no such scores.
    """
    scores, labels = call.input, call.target
    if not _is_chosen(call) or call.error or call.traced or not (is_plain(scores) and is_plain(labels)):
        return None
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or len(labels) < FEWEST:
        return None
    if scores.numel() > LIMIT or scores.shape[1] < 2 or not scores.requires_grad:
        return None
    scores = scores.detach().float()
    own = scores.gather(1, labels.clamp(0, scores.shape[1] - 1)[:, None])
    low, high = own.aminmax()
    apart = torch.maximum(high - low, (scores.amax(1, keepdim=True) - own).amax())
    return torch.stack([apart * SLACK, (high - scores.amin()).clamp(max=1.0), own.abs().amax()])


def _counts(at: Moment, call: LossCall, loss: Tensor | None) -> bool:
    """Is this call a part of the step's loss, and is anything behind it trained?"""
    value = call.value
    held = {id(p): g.get("lr") for o in at.run.optimizers for g in o.param_groups for p in g["params"]}
    behind = set(nodes(loss)) if loss is not None and at.run.automatic else set()
    if value.grad_fn is None or (0 < len(behind) < MOST and value.grad_fn not in behind):
        return False
    ends = leaves(value)
    rates = (held[id(t)] for t in ends.tensors if id(t) in held)
    return bool(ends.hidden) or any(isinstance(rate, Tensor) or rate for rate in rates)


def _pair(call: LossCall) -> tuple[Tensor, Tensor] | None:
    """Predictions and targets on one scale, where the call has a target for each prediction."""
    given, wanted = call.input, call.target
    if call.name == TRIPLET:
        given, wanted = call.arguments.get("anchor"), call.arguments.get("positive")
    if call.error or call.traced or not (is_plain(given) and is_plain(wanted)) or given.shape != wanted.shape:
        return None
    if not wanted.is_floating_point() or not given.numel() or not (given.requires_grad or wanted.requires_grad):
        return None
    given, wanted = given.detach(), wanted.detach()
    if call.name == "kl_div":
        return given.exp(), wanted.exp() if call.arguments.get("log_target") else wanted
    if call.name == "cross_entropy" and given.ndim:
        return given.softmax(class_axis(given)), wanted
    if call.name == "binary_cross_entropy_with_logits":
        return given.sigmoid(), wanted
    return (given, wanted) if call.name in (*DISTANCES, "binary_cross_entropy", TRIPLET) else None
