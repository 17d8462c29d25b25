"""Which row of the scores to ask, and which input is their target shifted by one position."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from .calls import Frontier, LossCall

CLASSES = ("cross_entropy", "nll_loss")
ALIKE = 0.9
"""Share of the valid targets that must equal the next inputs."""
SHORTEST = 4
"""Positions, and valid targets, below which equality may be chance."""


@dataclass(frozen=True)
class Row:
    """One row of the scores.

    Attributes:
        sample: number of the sample. position: position in its sequence, -1 without one. length: positions.
        place: where the input enters that the targets are, shifted by one; None for anything but such a prediction.
        axis: axis of the positions in the scores; -1 where they are of shape ``(samples * length, classes)``.
    """

    sample: int
    position: int = -1
    length: int = 0
    place: Frontier | None = None
    axis: int = 1

    def pick(self, scores: Tensor) -> Tensor:
        """The scores of this row, still in the graph."""
        if self.position < 0:
            return scores[self.sample]
        if self.axis < 0:
            return scores[self.sample * self.length + self.position]
        return scores[self.sample].select(self.axis - 1, self.position)


def row_of(call: LossCall, reached: Iterable[Frontier], samples: int) -> Row:
    """The row to ask: in the middle of the batch, and of the valid positions of a sequence. Reads the device."""
    scores, target = call.input, call.target
    plain = Row(min(samples // 2, len(scores) - 1))
    if call.name in CLASSES:
        per = target.numel() // samples if samples and target.numel() % samples == 0 else 1
        axis = -1 if scores.ndim == 2 else 2
        fits = scores.shape == (samples * per, scores.shape[1]) if axis < 0 else scores.shape[::2] == (samples, per)
        if target.is_floating_point() or per < SHORTEST or not fits:
            return plain
        targets = target.reshape(samples, per)
        valid = targets != call.arguments.get("ignore_index", -100)
    elif scores.ndim > 1 and scores.shape == target.shape and len(scores) == samples and scores.shape[1] >= SHORTEST:
        targets, axis, per = target, 1, scores.shape[1]
        valid = torch.ones(samples, per, dtype=torch.bool, device=target.device)
    else:
        return plain
    for place in reached:
        if _next(_values(place, targets), targets, valid):
            sample, position = _middle(valid)
            return Row(sample, position, per, place, axis)
    return Row(samples // 2, per // 2, per, None, axis) if axis != 1 else plain


def _values(place: Frontier, targets: Tensor) -> Tensor:
    """What enters there, as the targets would be given: one-hot rows as their numbers."""
    data = place.data
    if data.ndim == targets.ndim + 1 and data.is_floating_point() and not targets.is_floating_point():
        return data.argmax(-1)
    return data


def _next(inputs: Tensor, targets: Tensor, valid: Tensor) -> bool:
    """Are the targets at each position the inputs of the next one? Both are ``(samples, positions, …)``."""
    if inputs.ndim != targets.ndim or inputs.shape[2:] != targets.shape[2:] or len(inputs) != len(targets):
        return False
    if inputs.shape[1] - targets.shape[1] not in (0, 1) or inputs.device != targets.device:
        return False
    count = inputs.shape[1] - 1
    mask = valid[:, :count]
    hits = (targets[:, :count] == inputs[:, 1:]).flatten(2).all(2) if targets.ndim > 2 else None
    hits = (targets[:, :count] == inputs[:, 1:]) if hits is None else hits
    return bool(mask.sum() >= SHORTEST) and bool((hits & mask).sum() >= ALIKE * mask.sum())


def _middle(valid: Tensor) -> tuple[int, int]:
    """The last of the samples with the most valid targets, and its middle valid position, the last one left out.

    Under a causal mask over the wrong axis the first sample depends on itself alone, the last one on all.
    """
    counts = valid[:, :-1].sum(1)
    sample = int((counts == counts.max()).nonzero()[-1])
    places = valid[sample, :-1].nonzero().flatten()
    return sample, int(places[len(places) // 2])
