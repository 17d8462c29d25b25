"""The scene of an exception: which module, which line of the user's, which tensors."""

import dis
import re
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from ..evidence.runtime import NamedTensor
from .batches import elements
from .names import plain_name
from .site import line_of, origin

DTYPE = re.compile(
    r"\bdtypes?\b|scalar type|data ?type|must have the type torch\.|input type .* should be the same", re.IGNORECASE
)
DEVICE = re.compile(
    r"on the same device|expected device|different from other tensors on|same device as|Placeholder storage|"
    r"either on cpu or on|\(torch\.(cuda|mps|xpu)\.\w+\) and weight type|meta tensor",
    re.IGNORECASE,
)
NUMPY = re.compile(r"\bufunc\b|dtype\('|data type '|as a data type")
"""How NumPy and pandas speak of formats; what they refuse are no tensors."""
SHOWN = 12
"""Tensors kept of a scene."""


def short(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def named(name: str, tensor: Tensor, role: str = "") -> NamedTensor:
    """What evidence keeps of a tensor."""
    return NamedTensor(name, short(tensor.dtype), str(tensor.device), tuple(tensor.shape), role)


class Scene:
    """Read from the traceback of an exception that left the user's step.

    Attributes:
        message: first line of the exception.
        module: name of the innermost module of the model on the way; empty for none.
        where: the user's line.
        tensors: local variables and the module's own at the scene, each once, by their names in batch and model.
        batch: tensors of the batch.
        foreign: did the exception come from below the user's code, neither from a ``raise`` in it nor from NumPy?
    """

    def __init__(self, error: BaseException, model: nn.Module, batch: Any) -> None:
        self.message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        modules = {id(m): plain_name(name) for name, m in model.named_modules()}
        steps = tuple(_steps(error.__traceback__))
        frames = [step.tb_frame for step in steps]
        self.where = next((line_of(s.tb_frame, s.tb_lineno) for s in reversed(steps) if origin(s.tb_frame) == 0), "")
        self.module, inner = "", None
        for frame in frames:
            owner = _owner(frame)
            if id(owner) in modules and owner is not model:
                self.module, inner = modules[id(owner)], owner
        self.foreign = bool(steps) and not _raises(steps[-1]) and not NUMPY.search(str(error))
        self.batch = tuple(named(e.path, e.tensor, "batch") for e in elements(batch))[:SHOWN]
        self.tensors = tuple(_at_hand(frames, inner or model, self.module, batch, model))


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _raises(step: TracebackType) -> bool:
    """Does a ``raise`` of the user's stand there, wherever on its line?"""
    code = step.tb_frame.f_code.co_code
    return origin(step.tb_frame) == 0 and dis.opname[code[step.tb_lasti]] == "RAISE_VARARGS"


def _owner(frame: FrameType) -> Any:
    """Its ``self``. Of other frames the variables are not read: what is read stays in the frame, and the one in which
    the exception is being handled would hold that, and so the whole scene, in a cycle."""
    code = frame.f_code
    return frame.f_locals.get("self") if "self" in (*code.co_varnames, *code.co_freevars) else None


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", item) for i, item in enumerate(value[:SHOWN]) if isinstance(item, Tensor))


def _at_hand(
    frames: list[FrameType], inner: nn.Module, path: str, batch: Any, model: nn.Module
) -> Iterator[NamedTensor]:
    """Tensors that took part, as far as the frames still show them: of the innermost module's frame and those below."""
    known = {id(p): (plain_name(n), "registered") for n, p in (*model.named_parameters(), *model.named_buffers())}
    known |= {id(e.tensor): (e.path, "batch") for e in elements(batch)}
    first = max((i for i, f in enumerate(frames) if _owner(f) is inner), default=max(0, len(frames) - 3))
    seen: set[int] = set()
    found: list[NamedTensor] = []
    own: Mapping[str, Tensor | None] = {**inner._parameters, **inner._buffers}
    for frame in frames[first:]:
        for variable, value in frame.f_locals.items():
            for name, tensor in _tensors(variable, value):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    true_name, role = known.get(id(tensor), (name, ""))
                    found.append(named(true_name, tensor, role))
    for name, registered in own.items():
        if registered is not None and id(registered) not in seen:
            found.append(named(f"{path}.{name}" if path else name, registered, "registered"))
    yield from found[:SHOWN]
