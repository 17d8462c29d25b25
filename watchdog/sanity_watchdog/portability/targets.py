"""The accelerators that a run can be judged for, and who can be asked about each."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch

from . import tpu
from .native_functions import Support, installed
from .versions import VersionTable

KEYS = {"cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "tpu": "PrivateUse1"}
"""Dispatch key of each target."""
NO_FLOAT64 = ("mps",)
"""Targets without float64 and complex128: "the MPS framework doesn't support float64" (pytorch#122602)."""
STATIC = ("tpu", "xla")
"""Targets that compile a graph for every shape: torch_tpu compiles with ``dynamic=False``, PyTorch/XLA always."""
ASYNCHRONOUS = ("cuda", "tpu", "xla", "xpu")
"""Targets that run ahead of the host, so that reading a value waits for all queued work."""


class NotJudgedError(Exception):
    """Why a target's operators cannot be judged here."""


class Table(Protocol):
    """Whoever says what a backend has."""

    source: str

    def support(self, name: str, backend: str) -> Support: ...


_other_torch: ContextVar[str] = ContextVar("other torch", default="")


@contextmanager
def judging_for(version: str) -> Iterator[None]:
    """While this is entered, targets are judged for another version of torch; empty: for the installed one.

    Raises:
        ValueError: for a version that no table reaches; the message says which it does.
    """
    if version:
        VersionTable(version)
    token = _other_torch.set(version)
    try:
        yield
    finally:
        _other_torch.reset(token)


def judged_torch() -> str:
    """The version of torch that is judged for."""
    return _other_torch.get() or torch.__version__


def table_for(target: str) -> Table:
    """Who has kernels for ``target``: the dispatcher of this torch where it was built for it, else the
    ``native_functions.yaml`` in it, for TPUs the registrations of an installed torch_tpu.

    Raises:
        NotJudgedError: nobody can be asked; the message says why.
    """
    key = KEYS.get(target)
    if key is None:
        raise NotJudgedError(f"no table of operators says what {target} has")
    if version := _other_torch.get():
        if target != "mps":
            raise NotJudgedError(f"there is no table of {target}'s operators by version")
        return VersionTable(version)
    try:
        table = installed()
    except (OSError, ValueError) as error:
        raise NotJudgedError(f"this torch has no readable native_functions.yaml: {error}") from None
    if target == "tpu":
        try:
            answer = tpu.registrations()
        except tpu.NotAnsweredError as error:
            raise NotJudgedError(str(error)) from None
        return table.with_backend(key, answer.operators, f"{answer.source}, {table.source}")
    names = _dispatcher(key) if _built_for(target) else ()
    if names:
        return table.with_backend(key, names, f"{table.source}, this build")
    if not table.covers(key):
        raise NotJudgedError(f"{table.source} does not list {target}'s operators")
    return table


def _built_for(target: str) -> bool:
    if target == "cuda":
        return torch.version.cuda is not None or torch.version.hip is not None
    if target == "mps":
        return torch.backends.mps.is_built()
    return target == "xpu" and getattr(torch.xpu, "_is_compiled", lambda: False)()


def _dispatcher(key: str) -> tuple[str, ...]:
    ask = getattr(torch._C, "_dispatch_get_registrations_for_dispatch_key", None)
    return tuple(ask(key)) if ask is not None else ()
