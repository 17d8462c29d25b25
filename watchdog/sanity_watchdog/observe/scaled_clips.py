"""Sees gradients being clipped that a loss scaler has yet to unscale."""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from ..evidence.base import Evidence
from ..evidence.scaler import ScaledClip
from .clipping import ENTRY, noting_clips
from .holding import held_by
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .observer import Observer, in_samples, is_plain
from .run import Run
from .scaler import inner
from .site import user_line

LOOKS = 6
"""Sampled steps looked at."""


@dataclass(eq=False)
class _Clip:
    """A call of ``clip_grad_norm_``, and which optimizers each scaler had not unscaled by then."""

    where: str
    value: float
    norm: Tensor
    ahead: dict[int, list[GradScaler]]


class ScaledClipWatch(Observer):
    """Compares what a scaler knows of an optimizer at the clip and at the step: only in between has it unscaled."""

    codes = ("WD206",)

    def __init__(self) -> None:
        self._looks = 0
        self._clips: list[_Clip] = []
        self._inside = Inside()

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        scalers = _scalers(at.run)
        if at.stage != "train" or not at.sampled or self._looks >= LOOKS or not scalers:
            return ()
        if not hasattr(clip_grad, ENTRY) or anything_compiled(at.run.module):
            return ()
        self._looks += 1
        return (noting_clips(self._inside, partial(self._note, scalers, at.run.optimizers)),)

    def _note(self, scalers: Any, optimizers: Any, parameters: Any, max_norm: Any, norm: Any) -> None:
        plain = isinstance(norm, Tensor) and is_plain(norm) and norm.numel() == 1
        if not isinstance(parameters, (list, tuple)) or isinstance(max_norm, Tensor) or not plain:
            return
        clipped = {id(p) for p in parameters}
        ahead: dict[int, list[GradScaler]] = {}
        for optimizer in map(inner, optimizers):
            if any(id(p) in clipped for p in held_by(optimizer)):
                waiting = [s for s in scalers if _stage(s, optimizer) is OptState.READY]
                ahead |= {id(optimizer): waiting} if waiting else {}
        if ahead and math.isfinite(max_norm):
            self._clips.append(_Clip(user_line(), float(max_norm), norm.detach(), ahead))

    @in_samples
    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        key = id(inner(optimizer))
        for clip in self._clips:
            for scaler in clip.ahead.pop(key, ()):
                scale = getattr(scaler, "_scale", None)
                if _stage(scaler, inner(optimizer)) is OptState.UNSCALED and isinstance(scale, Tensor):
                    self._ask(at, clip, scale)

    def _ask(self, at: Moment, clip: _Clip, scale: Tensor) -> None:
        where, value = clip.where, clip.value

        def then(values: Mapping[str, Tensor]) -> Iterable[Evidence]:
            norm, factor = float(values["norm"]), float(values["scale"])
            yield ScaledClip(where=where, clip=value, norm=norm, scale=factor, **at.tags())

        at.ask({"norm": clip.norm, "scale": scale.detach().to(clip.norm.device)}, then)

    @in_samples
    def batch_end(self, at: Moment, output: Any) -> None:
        self._clips.clear()
        self._inside.tell()


def _scalers(run: Run) -> list[GradScaler]:
    """That of the run, and those that the module keeps."""
    known = {id(s): s for s in (run.scaler, *vars(run.module).values()) if isinstance(s, GradScaler)}
    return [s for s in known.values() if s.is_enabled()]


def _stage(scaler: GradScaler, optimizer: Optimizer) -> Any:
    """What the scaler has done to the optimizer since its last ``update``."""
    known = getattr(scaler, "_per_optimizer_states", {})
    if id(optimizer) not in known:  # a defaultdict, which shall not grow by our looking
        return OptState.READY
    return known[id(optimizer)].get("stage")
