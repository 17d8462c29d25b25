"""Functions of ours that run inside code which ``torch.compile`` made, such as a compiled ``optimizer.step``.

Dynamo traces whatever such code calls, Lightning's closure and the hooks of callbacks included. What it finds in ours
would become guards of the user's graphs, which are then compiled again and again.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

_FRAMES: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
"""Dynamo's C part, which is there before Dynamo is imported."""


def untraced(function: F) -> F:
    """Keep Dynamo out of ``function``, as ``torch._dynamo.skip`` does, which would import Dynamo."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    if isinstance(function, FunctionType):
        if hasattr(_FRAMES, "skip_code"):
            _FRAMES.skip_code(function.__code__)
        elif hasattr(_FRAMES, "set_code_exec_strategy"):
            actions = _FRAMES._FrameAction
            skipped = _FRAMES._FrameExecStrategy(actions.SKIP, actions.DEFAULT)
            _FRAMES.set_code_exec_strategy(function.__code__, skipped)
    return function


@untraced
def trace_with(tracer: Any) -> Any:
    """Let ``tracer`` trace the functions that are called from now on, None for nobody; who did so far is returned."""
    return _trace_with(tracer)


_trace_with: Callable[[Any], Any] = getattr(_FRAMES, "set_eval_frame", lambda tracer: None)
