"""Results that are dropped at once: a call that stands alone as a statement, and is no in-place one."""

import dis
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from types import CodeType

import torch
from torch import Tensor

from .calls import Trace
from .operation import Operation
from .site import is_ours, line_of, origin

ALSO = frozenset(
    ("permute", "view", "reshape", "flatten", "float", "long", "to", "softmax", "log_softmax", "normalize")
)
"""Operations that have no in-place twin, and are taken for one all the same."""
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
PASSES = frozenset(
    os.path.join(_TORCH, *path)
    for path in (("overrides.py",), ("functional.py",), ("_tensor.py",), ("nn", "functional.py"))
)
"""Files through which a call of the user's comes on its way. Modules are none: they may be called for their hooks."""


def follow_unused(trace: Trace, op: Operation) -> None:
    """Put the first operation into ``trace`` whose new result nobody takes; to be called within the operation."""
    name = str(getattr(op.function, "__name__", ""))
    if trace.unused or not _is_mistaken(name) or op.kwargs.get("out") is not None or op.kwargs.get("inplace"):
        return
    if not any(isinstance(a, Tensor) for a in op.args) or any(op.out is a for a in op.args):
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and (is_ours(frame) or frame.f_code.co_filename in PASSES):
        frame = frame.f_back
    if origin(frame) == 0 and frame.f_lasti in _dropping(frame.f_code):
        trace.unused = (name.strip("_"), line_of(frame, frame.f_lineno), _has_twin(name))


def _has_twin(name: str) -> bool:
    return hasattr(Tensor, f"{name}_")


@lru_cache(maxsize=512)
def _is_mistaken(name: str) -> bool:
    """Does it make a new tensor where people expect the old one to change?"""
    return not name.endswith("_") and (name in ALSO or _has_twin(name))


@lru_cache(maxsize=256)
def _dropping(code: CodeType) -> frozenset[int]:
    """Places in the code whose result the next instruction drops; a call stands at its end while a function runs.

    Not within ``try``: there a call may be made for what it raises.
    """
    steps = list(dis.get_instructions(code))
    dropped = (range(a.offset, b.offset, 2) for a, b in pairwise(steps) if b.opname == "POP_TOP")
    return frozenset(place for places in dropped for place in places).difference(_tried(code, steps))


def _tried(code: CodeType, steps: list[dis.Instruction]) -> Iterator[int]:
    """Places inside of ``try``; ``with`` is none."""
    after = {a.offset: (a.opname, b.opname) for a, b in pairwise(steps)}
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):  # from Python 3.11 on
        first, second = after.get(entry.target, ("", ""))
        if first == "PUSH_EXC_INFO" and second != "WITH_EXCEPT_START":
            yield from range(entry.start, entry.end, 2)
    for step in steps:
        if step.opname == "SETUP_FINALLY":  # before
            yield from range(step.offset, step.argval, 2)
