"""Looks at dropout: its probabilities at the start, its calls in the first validation batch."""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from ..evidence.modes import DropoutCall, Dropouts
from ..evidence.readings import Unseen
from .fastpath import has_fast_path
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer
from .run import Run
from .site import user_line

FLAGGED: tuple[Callable[..., Any], ...] = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
    torch.dropout,
    torch.alpha_dropout,
    torch.feature_dropout,
    torch.feature_alpha_dropout,
)
"""Functions of ``(input, p, training)``."""

_SHIMS = (F.__file__, torch.overrides.__file__)
"""Files through which a call comes on its way."""


def dropped(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float:
    """Share of the values that this call drops; 0 for any other function."""
    if function in FLAGGED:
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    elif function is F.multi_head_attention_forward:
        rate = kwargs.get("dropout_p", args[9] if len(args) > 9 else 0.0)
        training = kwargs.get("training", True)
    elif function is F.scaled_dot_product_attention:
        rate, training = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0), True
    else:
        return 0.0
    return float(rate) if training else 0.0


class DropoutObserver(Observer):
    """Dropout layers by their probability; calls by a function mode around the first validation step."""

    codes = ("WD505",)

    def __init__(self) -> None:
        self._mode: _DropoutMode | None = None

    def start(self, run: Run, at: Moment) -> None:
        rates = [(plain_name(n), float(m.p)) for n, m in run.module.named_modules() if isinstance(m, _DropoutNd)]
        at.emit(Dropouts(rates=tuple(rates), **at.tags()))

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage != "validation" or at.run.module.training:
            return ()
        if anything_compiled(at.run.module) or has_fast_path(at.run.module):
            at.emit(Unseen(codes=("WD505",), reason="compiled or fused step", **at.tags()))
            return ()
        self._mode = _DropoutMode(at.run.module)
        return (self._mode,)

    def output(self, at: Moment, output: Any) -> None:
        mode, self._mode = self._mode, None
        if mode is None:
            return
        if mode.error is not None:
            raise mode.error
        at.emit(Dropouts(calls=tuple(mode.calls.values()), **at.tags()))


class _DropoutMode(TorchFunctionMode):
    """Notes calls that drop something, once per line of the user's."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self._registered = {id(m) for m in root.modules()}
        self.calls: dict[str, DropoutCall] = {}
        self.error: Exception | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        try:
            rate = dropped(func, args, kwargs)
            if rate > 0:
                self._note(func.__name__, rate, sys._getframe(1))
        except Exception as error:  # noqa: BLE001
            self.error = error  # it must not reach the user's step; ``output`` tells it
        return func(*args, **kwargs)

    def _note(self, function: str, rate: float, caller: FrameType | None) -> None:
        where = user_line()
        while caller is not None and caller.f_code.co_filename in _SHIMS:
            caller = caller.f_back
        owner = None if caller is None else caller.f_locals.get("self")
        if not isinstance(owner, nn.Module):
            owner = None
        self.calls.setdefault(
            f"{function} {where}",
            DropoutCall(
                function=function,
                rate=rate,
                owner=function if owner is None else type(owner).__name__,
                where=where,
                meant=owner is not None and owner.training and id(owner) in self._registered,
                attention="attention" in function,
            ),
        )
