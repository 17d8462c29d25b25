"""Which row of the scores to ask, and which embedding's ids are its targets shifted by one."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from .calls import Frontier, LossCall

ALIKE = 0.9
"""Share of the valid targets that must equal the next ids."""
SHORTEST = 4


@dataclass(frozen=True)
class Row:
    """One row of the scores.

    Attributes:
        sample: number of the sample. position: position in its sequence, -1 without one. length: positions.
        ids: the ids that the targets are, shifted by one; None for anything but next-token prediction.
        flat: are the scores of shape ``(samples * length, classes)``?
    """

    sample: int
    position: int = -1
    length: int = 0
    ids: Tensor | None = None
    flat: bool = False

    def pick(self, scores: Tensor) -> Tensor:
        """The scores of this row, still in the graph."""
        if self.position < 0:
            return scores[self.sample]
        if self.flat:
            return scores[self.sample * self.length + self.position]
        return scores[self.sample, :, self.position]


def sequence_of(call: LossCall, reached: Iterable[Frontier], samples: int) -> Row:
    """The row to ask: in the middle of the batch, and of the valid positions of a sequence. Reads the device."""
    scores, target = call.input, call.target
    sample = max(samples // 2, 0)
    per = target.numel() // samples if samples and target.numel() % samples == 0 else 1
    if call.name in ("cross_entropy", "nll_loss") and not target.is_floating_point() and per >= SHORTEST:
        flat = scores.ndim == 2 and len(scores) == samples * per
        if flat or (scores.ndim == 3 and tuple(scores.shape[::2]) == (samples, per)):
            targets = target.reshape(samples, per)
            valid = targets != call.arguments.get("ignore_index", -100)
            for place in reached:
                if place.ids is not None and _next(place.ids, targets, valid):
                    sample, position = _middle(valid)
                    return Row(sample, position, per, place.ids, flat)
            return Row(sample, per // 2, per, None, flat)
    return Row(min(sample, len(scores) - 1))


def _next(ids: Tensor, targets: Tensor, valid: Tensor) -> bool:
    """Are the targets at each position the ids of the next one?"""
    length = targets.shape[1]
    if ids.ndim != 2 or len(ids) != len(targets) or ids.shape[1] - length not in (0, 1):
        return False
    count = ids.shape[1] - 1
    mask = valid[:, :count]
    hits = ((targets[:, :count] == ids[:, 1:]) & mask).sum()
    return bool(mask.sum() >= SHORTEST) and bool(hits >= ALIKE * mask.sum())


def _middle(valid: Tensor) -> tuple[int, int]:
    """A sample near the middle of the batch with the most valid targets, and its middle valid position but the last."""
    sample = int(valid[:, :-1].sum(1).argmax())
    places = valid[sample, :-1].nonzero().flatten()
    return sample, int(places[len(places) // 2])
