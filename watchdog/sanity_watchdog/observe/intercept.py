"""Sees loss functions being called: with a function mode in eager code, at their entry points beside compiled code.

A mode sees every operation and its line, but Dynamo guards on modes, so that one graph would be compiled twice. The
entry points are the C functions that the functional losses call: replacing them reaches every alias of a loss and no
guard of Dynamo. They are also the cheap way, which later samples use.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from . import compiled
from .calls import LossCall, Trace
from .inside import Inside
from .lineage import Lineage
from .onlooker import Onlooker
from .replaced import replaced
from .site import user_line

LOSSES = frozenset(
    name
    for name in dir(F)
    if name.endswith(("_loss", "cross_entropy")) or name in ("binary_cross_entropy_with_logits", "kl_div")
)
ENTRY_POINTS: dict[tuple[Any, str], tuple[str, tuple[str, ...]]] = {
    (torch._C._nn, "cross_entropy_loss"): (
        "cross_entropy",
        ("input", "target", "weight", "reduction", "ignore_index", "label_smoothing"),
    ),
    (torch._C._nn, "nll_loss_nd"): ("nll_loss", ("input", "target", "weight", "reduction", "ignore_index")),
    (torch._C._nn, "mse_loss"): ("mse_loss", ("input", "target", "reduction")),
    (torch._C._nn, "l1_loss"): ("l1_loss", ("input", "target", "reduction")),
    (torch._C._nn, "smooth_l1_loss"): ("smooth_l1_loss", ("input", "target", "reduction", "beta")),
    (torch._C._nn, "huber_loss"): ("huber_loss", ("input", "target", "reduction", "delta")),
    (torch._C._nn, "binary_cross_entropy"): ("binary_cross_entropy", ("input", "target", "weight", "reduction")),
    (torch, "binary_cross_entropy_with_logits"): (
        "binary_cross_entropy_with_logits",
        ("input", "target", "weight", "pos_weight", "reduction"),
    ),
    (torch, "kl_div"): ("kl_div", ("input", "target", "reduction", "log_target")),
    (torch, "triplet_margin_loss"): (
        "triplet_margin_loss",
        ("anchor", "positive", "negative", "margin", "p", "eps", "swap", "reduction"),
    ),
    (torch, "ctc_loss"): (
        "ctc_loss",
        ("log_probs", "targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity"),
    ),
}
REDUCTIONS = ("none", "mean", "sum")

Seen = Callable[[LossCall], None]


class Interception(Inside):
    """Records loss calls of one step into ``trace`` and hands each to ``seen`` at the moment of the call.

    ``coming`` gets a call before it is made, where that is possible.
    """

    def __init__(self, trace: Trace, seen: Seen, step: int, coming: Seen = lambda call: None) -> None:
        super().__init__()
        self.trace = trace
        self.coming = coming
        self._seen = seen
        self._step = step

    def record(self, call: LossCall) -> None:
        """A loss function returned or raised."""
        call.step = self._step
        self.trace.calls.append(call)
        self.do(self._seen, call)


class FollowingMode(Onlooker):
    """Sees every eager call: loss functions with their real arguments, everything else for its lineage."""

    def __init__(self, interception: Interception, lineage: Lineage) -> None:
        super().__init__()
        self._to = interception
        self._lineage = lineage

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = _signature_of(func)
        if signature is None:
            out = self.call(func, args, kwargs)
            self._to.do(self._lineage.follow, func, args, kwargs, out)
            return out
        call = LossCall(func.__name__, user_line(), {}, followed=True)
        self._to.do(self._describe, call, signature, args, kwargs)
        self._to.do(self._to.coming, call)
        try:
            call.value = self.call(func, args, kwargs)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            if not isinstance(error, torch.OutOfMemoryError):
                call.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._to.record(call)
        self._to.do(self._lineage.follow, func, args, kwargs, call.value)
        self._to.do(self._lineage.called, call)
        return call.value

    def _describe(
        self, call: LossCall, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        call.arguments = dict(signature.bind(*args, **kwargs).arguments)
        if call.arguments.pop("reduce", None) is False:
            call.arguments["reduction"] = "none"
        elif call.arguments.pop("size_average", None) is False:
            call.arguments["reduction"] = "sum"
        fact = self._lineage.of(call.prediction)
        call.origin, call.head, call.logs = fact.origin, fact.head, fact.logs
        call.cosine = fact.cosine or self._lineage.is_product(call.prediction)
        target = self._lineage.of(call.target)
        call.classes, call.rows, call.outside = fact.classes, target.rows, call.followed and not target.data
        call.given = call.followed and isinstance(call.target, torch.Tensor) and not (target.made and fact.made)
        call.pairs = self._lineage.compared(call.input, call.target)


@lru_cache(maxsize=4096)
def _signature_of(function: Any) -> inspect.Signature | None:
    """Of a loss function of torch's, None for others."""
    if not isinstance(function, FunctionType) or function.__name__ not in LOSSES:
        return None
    return inspect.signature(function) if function.__globals__ is vars(F) else None


@contextmanager
def entry_points(interception: Interception) -> Iterator[None]:
    """Records the same calls without a mode, without lineage."""

    def wrapped(real: Callable[..., Any], name: str, names: tuple[str, ...]) -> Callable[..., Any]:
        def entry(*args: Any, **kwargs: Any) -> Any:
            out = real(*args, **kwargs)
            interception.do(note, name, {**dict(zip(names, args, strict=False)), **kwargs}, out)
            return out

        return entry

    def note(name: str, arguments: dict[str, Any], out: Any) -> None:
        kind = type(next(iter(arguments.values()), None)).__name__
        if kind == "FunctionalTensor":  # the same call once more, inside the tracer
            return
        if isinstance(arguments.get("reduction"), int):
            arguments["reduction"] = REDUCTIONS[arguments["reduction"]]
        call = LossCall(name, user_line(), arguments, out, traced=kind == "FakeTensor")
        interception.record(call)

    with replaced({key: partial(wrapped, name=name, names=names) for key, (name, names) in ENTRY_POINTS.items()}):
        yield


def anything_compiled(module: nn.Module) -> bool:
    """Can this run reach code that was given to ``torch.compile``? Asked of Dynamo, then of the modules.

    Code that anything in this process still holds counts as such: the step may call it by any way.
    """
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(frames, "cached_backends", None)
    used = isinstance(backends, dict) and any(b not in (None, False) for b in backends.values())
    if frames is not None and used and compiled.any_alive(frames):
        return True
    return any(m._compiled_call_impl is not None or "_orig_mod" in m._modules for m in module.modules())
