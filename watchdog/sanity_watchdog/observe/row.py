"""Steps at rest: between samples of a settled run on the host, two numbers are kept of each step."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer

from .aside import dispatch_modes, function_modes
from .untraced import untraced

LONGEST = 256
"""Batches after which a row is handed over, however far the next sample is."""
Hook = Callable[..., None]


class Track(Protocol):
    """An optimizer's learning rates, how often it was about to step, and whether that only has to be counted."""

    rates: list[float]
    attempts: int
    steady: bool


class Row:
    """Training steps at rest, one after another, of which nobody is told until one is not like the others.

    ``stepping`` and ``ended`` take the place of all hooks: each function of ours that has left the processor's caches
    since the step before costs several microseconds. Whoever still calls them when the row is over calls the hooks.

    Args:
        most: optimizer steps after which the row is over.
        same: called in turn with an optimizer that is about to step: does it step as it always did?
        across: may it go on in the next epoch?

    Attributes:
        over: nothing is kept any more.
        losses: of the batches so far.
        ends: when they ended, in seconds of the monotonic clock.
        steps: optimizer steps so far, those of a batch that has not ended among them.
        epochs: how many batches there were at the end of each epoch that has ended in it.
        tracks: of optimizers by their ids; of one that is steady and keeps its rates ``same`` is not asked.
    """

    def __init__(self, most: int, same: Sequence[Callable[[Optimizer], bool]], across: bool = False) -> None:
        self.over = False
        self.losses: list[float] = []
        self.ends: list[float] = []
        self.epochs: list[int] = []
        self.tracks: dict[int, Track] = {}
        self.steps = 0
        self._across = across
        self._most = most
        self._same = same
        self._hooks: Mapping[str, Hook] = {}
        self._finish: Hook = lambda *_: None

    def places(self, hooks: Mapping[str, Hook], finish: Hook) -> dict[str, Hook]:
        """What takes the place of each hook.

        Args:
            hooks: the real ones, by name.
            finish: called with the trainer, the step's output, the batch, and whether that batch is in ``losses``.
        """
        self._hooks, self._finish = hooks, finish
        mine: dict[str, Hook] = {"on_before_optimizer_step": self.stepping, "on_train_batch_end": self.ended}
        return {name: mine[name] if name in mine else self._resting(hook) for name, hook in hooks.items()}

    def _resting(self, hook: Hook) -> Hook:
        def rests(*args: Any, **kwargs: Any) -> None:
            if self.over:
                hook(*args, **kwargs)

        return untraced(rests)

    def epoch_ends(self) -> bool:
        """An epoch has ended; does the row go on?"""
        if self._across and not self.over:
            self.epochs.append(len(self.losses))
        return self._across and not self.over

    @untraced
    def stepping(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """What Lightning calls before an optimizer steps."""
        if self.over:
            self._hooks["on_before_optimizer_step"](trainer, module, optimizer)
            return
        self.steps += 1
        known = self.tracks.get(id(optimizer))
        try:
            if known is not None and known.steady and known.rates == [g.get("lr") for g in optimizer.param_groups]:
                known.attempts += 1
                return
        except Exception:  # noqa: BLE001
            pass  # rates of a strange kind
        for same in self._same:
            if not same(optimizer):
                self._most = 0

    @untraced
    def ended(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """What Lightning calls after a batch."""
        if self.over:
            self._hooks["on_train_batch_end"](trainer, module, outputs, batch, batch_idx)
            return
        noted = False
        try:
            if type(outputs) is dict and not (dispatch_modes() or function_modes()):
                loss = outputs.get("loss")
                if type(loss) is Tensor and loss.is_cpu:  # what else it is, the next two lines find out
                    number = loss.item()
                    if -inf < number < inf:
                        self.losses.append(number)
                        self.ends.append(monotonic())
                        noted = True
        except Exception:  # noqa: BLE001
            pass  # the long way will tell
        if not noted or self.steps >= self._most or len(self.losses) >= LONGEST:
            self._finish(trainer, outputs, batch, noted)
