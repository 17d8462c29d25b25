"""Looks at dropout: its probabilities at the start, its calls in the first validation batch."""

import linecache
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ..evidence.modes import DropoutCall, Dropouts
from ..evidence.readings import Unseen
from .dropped import dropped, dropped_outputs
from .inside import Inside
from .intercept import anything_compiled
from .moment import Moment
from .names import plain_name
from .observer import Observer
from .onlooker import Onlooker
from .run import Run
from .site import stands_in, user_line

_SHIMS = (F.__file__, torch.overrides.__file__, os.path.dirname(__file__) + os.sep)
"""Files through which a call comes on its way."""


class DropoutObserver(Observer):
    """Dropout layers by their probability; calls of dropout functions in the first steps."""

    codes = ("WD505",)

    def __init__(self) -> None:
        self._notes: _Notes | None = None
        self._told = False

    def start(self, run: Run, at: Moment) -> None:
        rates = [(plain_name(n), float(m.p)) for n, m in run.module.named_modules() if isinstance(m, _DropoutNd)]
        at.emit(Dropouts(rates=tuple(rates), **at.tags()))

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        if at.stage != "validation" or at.run.module.training:
            return ()
        if anything_compiled(at.run.module):
            at.emit(Unseen(codes=("WD505",), reason="compiled step", **at.tags()))
            return ()
        self._notes = _Notes(at.run.module)
        return (_DropoutMode(self._notes),)

    def output(self, at: Moment, output: Any) -> None:
        if at.stage == "train" and not self._told and at.trace is not None and at.trace.followed:
            self._told = True
            layers = {m.p for m in at.run.module.modules() if isinstance(m, _DropoutNd)}
            drops = sorted(d for d in at.trace.drops if d[1] not in layers)
            at.emit(Dropouts(drops=tuple(drops), outputs=tuple(dropped_outputs(at.trace)), **at.tags()))
        notes, self._notes = self._notes, None
        if notes is None:
            return
        notes.tell()
        at.emit(Dropouts(calls=tuple(notes.calls.values()), **at.tags()))


class _Notes(Inside):
    """Calls that drop something, once per line of the user's."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self._registered = {id(m) for m in root.modules()}
        self.calls: dict[str, DropoutCall] = {}

    def take(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], caller: FrameType | None) -> None:
        rate = dropped(function, args, kwargs)
        if rate > 0 and not torch.is_grad_enabled():  # else something is trained or adapted in the evaluation
            self._keep(function.__name__, rate, caller)

    def _keep(self, function: str, rate: float, caller: FrameType | None) -> None:
        where = user_line()
        while caller is not None and (caller.f_code.co_filename.startswith(_SHIMS) or stands_in(caller)):
            caller = caller.f_back
        owner = None if caller is None else caller.f_locals.get("self")
        said = caller is not None and _says_so(caller)
        if not isinstance(owner, nn.Module):
            owner = None
        self.calls.setdefault(
            f"{function} {where}",
            DropoutCall(
                function=function,
                rate=rate,
                owner=function if owner is None else type(owner).__name__,
                where=where,
                meant=said or (owner is not None and owner.training and id(owner) in self._registered),
                attention="attention" in function,
            ),
        )


def _says_so(caller: FrameType) -> bool:
    """Does the line that is being run give a flag of its own, which is not that of a module?"""
    line = linecache.getline(caller.f_code.co_filename, caller.f_lineno)
    return "training=True" in line.replace(" ", "")


class _DropoutMode(Onlooker):
    """Sees every call, also of functions that were imported by name."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._notes.do(self._notes.take, func, args, kwargs, sys._getframe(2))
        return self.call(func, args, kwargs)
