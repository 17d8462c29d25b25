"""Steps at rest: between samples of a settled run on the host, two numbers are kept of each step."""

from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .aside import dispatch_modes, function_modes
from .ledger import READABLE

LONGEST = 256
"""Batches after which a row is handed over, however far the next sample is."""


class Row:
    """Training steps at rest, one after another, of which nobody is told until one is not like the others.

    Its two methods take the place of all hooks: each of Lightning's costs several microseconds, and so does each
    function of ours that has left the processor's caches since the step before.

    Args:
        most: optimizer steps after which the row is over.
        same: called in turn with an optimizer that has stepped: does it step as it always did?
        over: called with the trainer, the step's output, the batch, and whether that batch is in ``losses``.

    Attributes:
        losses: of the batches so far.
        ends: when they ended, in seconds of the monotonic clock.
        steps: optimizer steps so far, those of a batch that has not ended among them.
    """

    def __init__(self, most: int, same: Sequence[Callable[[Optimizer], bool]], over: Callable[..., None]) -> None:
        self.losses: list[float] = []
        self.ends: list[float] = []
        self.steps = 0
        self._most = most
        self._same = same
        self._over = over

    def stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """What an optimizer calls after its step."""
        self.steps += 1
        for same in self._same:
            if not same(optimizer):
                self._most = 0

    def ended(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """What Lightning calls after a batch."""
        noted = False
        try:
            if type(outputs) is dict and not (dispatch_modes() or function_modes()):
                loss = outputs.get("loss")
                if type(loss) is Tensor and loss.is_cpu and loss.dtype in READABLE and loss.numel() == 1:
                    number = loss.item()
                    if -inf < number < inf:
                        self.losses.append(number)
                        self.ends.append(monotonic())
                        noted = True
        except Exception:  # noqa: BLE001
            pass  # the long way will tell
        if not noted or self.steps >= self._most or len(self.losses) >= LONGEST:
            self._over(trainer, outputs, batch, noted)
