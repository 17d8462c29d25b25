"""Sees ``clip_grad_norm_`` being called in a step, and whether there is a gradient that it could still change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from ..evidence.gradients import ClipCalls
from ..evidence.readings import Unseen
from .holding import held_by
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .observer import Observer, in_samples, is_plain
from .replaced import replaced
from .run import Run
from .site import user_line

ENTRY = "_clip_grads_with_norm_"
"""What ``clip_grad_norm_`` calls by its global name, under whatever name it was imported."""
NO_LIMIT = 1e5
"""Largest norm from which on nothing is to be clipped: only the norm itself is wanted."""
LOOKS = 6
"""Sampled steps looked at."""
State = tuple[int, int]
"""Where a gradient lies, and how often it has been written to."""


def noting_clips(inside: Inside, note: Callable[[Any, Any, Any], None]) -> AbstractContextManager[None]:
    """Tells ``note`` of each call of ``clip_grad_norm_``: the parameters, the largest norm allowed, and their norm."""

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def entry(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
            inside.do(note, parameters, max_norm, total_norm)
            return real(parameters, max_norm, total_norm, *args, **kwargs)

        return entry

    return replaced({(clip_grad, ENTRY): noting})


class ClippingWatch(Observer):
    """Calls within ``training_step``; what Lightning clips comes after it, or after a backward in it."""

    codes = ("WD218",)

    def __init__(self) -> None:
        self._looks = 0
        self._spent: dict[int, State] = {}
        self._calls: dict[str, list[int]] = {}
        self._asked: list[tuple[str, Tensor]] = []
        self._inside = Inside()

    def start(self, run: Run, at: Moment) -> None:
        if not hasattr(clip_grad, ENTRY) or (run.automatic and run.accumulate > 1):
            self._looks = LOOKS
            at.emit(Unseen(codes=self.codes, reason="gradients of several batches are clipped at once", **at.tags()))

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        if self._looks < LOOKS:
            held = held_by(optimizer)
            self._spent.update({id(p): state for p in held if (state := _state(p)) is not None})

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage != "train" or not at.sampled or self._looks >= LOOKS:
            return ()
        if anything_compiled(at.run.module):
            self._looks = LOOKS
            at.emit(Unseen(codes=self.codes, reason="compiled step", **at.tags()))
            return ()
        self._looks += 1
        return (noting_clips(self._inside, self._note),)

    def _note(self, parameters: Any, max_norm: Any, norm: Any) -> None:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters) if _again(parameters) else []
        if not given or isinstance(max_norm, Tensor) or not max_norm < NO_LIMIT:
            return
        where = user_line()
        counts = self._calls.setdefault(where, [0, 0, 0])
        found = [p for p in given if p.grad is not None]
        fresh = [p for p in found if _state(p) is None or _state(p) != self._spent.get(id(p))]
        counts[0] += 1
        counts[1] += not fresh
        counts[2] += not found
        if fresh and all(_is_kept(_state(p), self._spent.get(id(p))) for p in fresh):
            self._asked.append((where, _all_zero([p.grad for p in fresh if p.grad is not None])))

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        self._inside.tell()
        if self._asked:
            lines, tensors = zip(*self._asked, strict=True)
            self._asked = []
            at.ask({str(i): t for i, t in enumerate(tensors)}, partial(self._answered, at.tags(), lines))
        elif self._looks:
            for calls in self._counted(at.tags()):
                at.emit(calls)

    def _answered(self, tags: Mapping[str, Any], lines: Sequence[str], zero: Mapping[str, Tensor]) -> list[ClipCalls]:
        for i, where in enumerate(lines):
            self._calls[where][1] += int(zero[str(i)])
        return self._counted(tags)

    def _counted(self, tags: Mapping[str, Any]) -> list[ClipCalls]:
        lines = self._calls.items() or (("", [0, 0, 0]),)
        return [ClipCalls(where=w, times=times, early=early, none=none, **tags) for w, (times, early, none) in lines]


def _again(parameters: Any) -> bool:
    """Can these be gone through once more without being used up?"""
    return isinstance(parameters, (list, tuple))


def _is_kept(now: State | None, spent: State | None) -> bool:
    """Is it the gradient that the last step used up, written to since? By ``zero_grad``, or by backward."""
    return now is not None and spent is not None and now[0] == spent[0]


def _all_zero(gradients: Sequence[Tensor]) -> Tensor:
    device = gradients[0].device
    return torch.stack([~gradient.any() for gradient in gradients if gradient.device == device]).all()


def _state(parameter: Tensor) -> State | None:
    """None where there is no gradient, or none that may be looked at."""
    gradient = parameter.grad
    if gradient is None or not is_plain(gradient) or gradient.layout is not torch.strided:
        return None
    return gradient.data_ptr(), gradient._version
