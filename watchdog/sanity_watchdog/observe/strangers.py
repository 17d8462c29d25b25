"""Follows tensors that would stay on the CPU, and notes where they meet the model's.

A tensor made without ``device=`` or kept in an unregistered attribute is a stranger; so is what is computed from
strangers alone. Parameters, buffers, the batch and all that comes of them are at home. On the CPU both may meet; on an
accelerator the same line fails. What is computed from strangers, or from tensors that the user moved to the CPU, runs
on the CPU everywhere and is not recorded.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ..evidence.runtime import Stranger
from .calls import Marks
from .inside import Inside
from .onlooker import Onlooker
from .placement import Loose
from .recorder import Recorder
from .site import user_line

MAY_MEET = frozenset(
    {
        "__getitem__", "__setitem__", "index_put", "index_put_", "copy_", "set_", "__set__", "ctc_loss", "tensor_split",
        "_pack_padded_sequence", "pack_padded_sequence", "__get__", "is_same_size", "type_as", "to",
    }
)  # fmt: skip
"""Functions whose arguments may be on different devices: indices, lengths, copies."""
_VALUES_ONLY: dict[Any, str] = {
    torch.linalg.eigvals: "aten::linalg_eig",
    torch.linalg.eigvalsh: "aten::_linalg_eigh",
    torch.linalg.svdvals: "aten::_linalg_svd",
    torch.linalg.cond: "aten::_linalg_svd",
    torch.linalg.matrix_rank: "aten::_linalg_svd",
    torch.linalg.matrix_norm: "",
    torch.linalg.norm: "",
    torch.norm: "",
    Tensor.norm: "",
}
"""Functions that skip the vectors where no gradient is needed, but compute them under any dispatch mode, which changes
low bits of the values; and the operator that they call then."""
MOVES = frozenset({"to", "cpu", "cuda", "xpu", "type_as"})
ASHORE = Stranger("", "", "")
"""A tensor that the user put on the CPU on purpose: what is computed from such alone needs nothing of a target."""


@functools.cache
def _factories() -> frozenset[Callable[..., Any]]:
    """Functions that make tensors on the default device, as torch itself lists them."""
    try:
        from torch.utils._device import _device_constructors

        listed = frozenset(_device_constructors())
    except (ImportError, AttributeError):
        listed = frozenset({torch.arange, torch.zeros, torch.ones, torch.empty, torch.full, torch.tensor, torch.eye})
    return listed | {torch.from_numpy}


class Following(Onlooker):
    """The step's calls with strangers among their arguments.

    Args:
        loose: unregistered tensors of the model: strangers from the start.
        recorder: told what runs on the CPU anyway; paused for functions that compute differently while it is active.

    Attributes:
        met: strangers that met tensors at home, each place once.
        inside: what looks in the middle of the step; nothing is followed after its fault.
    """

    def __init__(self, loose: Iterable[Loose], recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.met: dict[Stranger, None] = {}
        self.inside = Inside()
        self._strange: Marks[Stranger | None] = Marks()
        for one in loose:
            self._strange.put(one.tensor, Stranger(one.name, "", "", attribute=True))

    def saw(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner = _VALUES_ONLY.get(func)
        self.inside.do(self._look_before, func, args, kwargs)
        try:
            with nullcontext() if inner is None else self._recorder.paused():
                out = self.call(func, args, kwargs)
        finally:
            ashore, self._recorder.ashore = self._recorder.ashore, False
        self.inside.do(self._look_after, inner if not ashore else "", func, args, kwargs, out)
        return out

    def _look_after(
        self, inner: str | None, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        if inner:
            self._recorder.add(inner)
        self._follow(func, args, kwargs, out)

    def _look_before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = list(_tensors((*args, *kwargs.values())))
        made = not given and func in _factories() and kwargs.get("device") in (None, "cpu")
        self._recorder.ashore = made or (bool(given) and all(self._strange.get(t) is not None for t in given))

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        name = getattr(func, "__name__", "")
        given = list(_tensors((*args, *kwargs.values())))
        strangers = [s for s in map(self._strange.get, given) if s is not None]
        if name in MOVES and _names_a_device(name, args, kwargs):
            on_purpose = name == "cpu" or "cpu" in (*args[1:2], kwargs.get("device"))
            self._mark(out, ASHORE if on_purpose else None)
        elif not given:
            if func in _factories() and kwargs.get("device") in (None, "cpu"):
                on_purpose = kwargs.get("device") is not None
                self._mark(out, ASHORE if on_purpose else Stranger(name, "", "", born=user_line()))
        elif strangers and len(strangers) == len(given):
            self._mark(out, strangers[0])
        elif strangers:
            if name == "__getitem__" and self._strange.get(args[0]) is not None:
                self._mark(out, self._strange.get(args[0]))
            elif name not in MAY_MEET:
                self._note(name, given)

    def _note(self, name: str, given: list[Tensor]) -> None:
        for tensor in given:
            stranger = self._strange.get(tensor)
            if stranger not in (None, ASHORE) and tensor.ndim:
                place = Stranger(stranger.made, user_line(), name.strip("_"), stranger.born, stranger.attribute)
                self.met.setdefault(place)

    def _mark(self, out: Any, stranger: Stranger | None) -> None:
        for tensor in _tensors((out,)):
            self._strange.put(tensor, stranger)


def _tensors(values: Iterable[Any], depth: int = 2) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif depth and isinstance(value, (list, tuple)):
            yield from _tensors(value, depth - 1)


def _names_a_device(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name != "to":
        return True
    named = (*args[1:2], kwargs.get("device"), kwargs.get("other"))
    return any(isinstance(a, (torch.device, str, int, Tensor)) and not isinstance(a, bool) for a in named)
