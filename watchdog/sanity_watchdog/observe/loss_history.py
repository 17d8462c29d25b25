"""What the host keeps of the losses and labels of a run, bounded."""

import math
from collections import deque
from dataclasses import dataclass, field

from ..evidence.progress import Culprit, LossFinite, Spoiled

RECENT = 128
"""Losses in the evidence."""
ORDER = 64
"""Batches in the evidence about the order of labels."""


@dataclass
class Seen:
    """What the host knows so far, bounded."""

    until: int = -1
    losses: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    count: int = 0
    dropped_highest: float = math.nan
    bad_input: tuple[str, int] = ("", -1)
    failure: LossFinite | None = None
    culprits: dict[int, Culprit | None] = field(default_factory=dict)
    spoiled: tuple[int, Spoiled] | None = None
    order: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=ORDER))

    def spoiled_at(self, batch: int) -> Spoiled | None:
        """What was not finite before the loss of this batch; None where it was the step of an earlier one."""
        return self.spoiled[1] if self.spoiled is not None and self.spoiled[0] == batch else None


def batch_of(failure: LossFinite | None) -> int:
    """The batch of the first loss that was not finite; -1 for none."""
    return -1 if failure is None else failure.batch


def larger(a: float, b: float) -> float:
    """The larger of two, where the first may be NaN for none."""
    return b if math.isnan(a) or b > a else a
