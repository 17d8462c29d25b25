"""Writes down which operators a step dispatches to, from which module and line, in forward and backward."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from ..evidence.portability import OperatorCall
from .inside import Inside
from .names import plain_name
from .overlapping import DISPATCH
from .replaced import replaced
from .site import user_line

WIDE = (torch.float64, torch.complex128)
DIFFERS_IN_BACKWARD = frozenset({"aten::prod"})
"""Operators whose gradient is computed by another formula while a dispatch mode is active, so that its low bits differ:
found by running every operator of torch's own test table, forward and backward, with and without this mode."""
STATIC_IN_PRACTICE = ("aten::_ctc_loss",)
"""Tagged as data-dependent, though its result's shape follows from the arguments' shapes."""
LIFTED = "aten::lift_fresh"
"""What ``torch.tensor`` has read of an array: on the host, before it takes the format asked for."""
Place = tuple[str, str, str]
"""Phase, module, line."""
ASHORE = "ashore"
"""Phase of what runs on the CPU anyway, forward and backward."""


def _none() -> None:
    return None


_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", _none)
_sequence: Callable[[], int | None] = getattr(torch.autograd, "_get_sequence_nr", _none)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees operators below autograd, where a backend's kernel is looked up. Changes nothing: every operator is called
    as it came.

    Args:
        model: modules are named as in it.

    Attributes:
        active: is it recording?
        ashore: runs what comes now on the CPU anyway, so that no target needs it?
        inside: what looks in the middle of the step; nothing is written down after its fault.
    """

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Operators that compile themselves, such as FlexAttention, refuse to run under any other mode."""
        return True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {id(m): plain_name(name) for name, m in model.named_modules()}
        self._stack: list[str] = []
        self._places: dict[int, Place] = {}
        self._found: Counter[tuple[str, Place, str, bool]] = Counter()
        self.active = False
        self.ashore = False
        self.inside = Inside()

    @property
    def calls(self) -> tuple[OperatorCall, ...]:
        """What was seen so far, in order of first appearance."""
        return tuple(
            OperatorCall(name, phase, module, where, count, depends, wide)
            for (name, (phase, module, where), depends, wide), count in self._found.items()
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what happens inside."""
        hooks = (
            register_module_forward_pre_hook(self.inside.hook(self._enter_module)),
            register_module_forward_hook(self.inside.hook(self._leave_module), always_call=True),
        )
        self.active = True
        try:
            with replaced(_CHANGED), self:
                yield
        finally:
            self.active = False
            self._stack.clear()
            for hook in hooks:
                hook.remove()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the mode for a while: some operators choose another algorithm while any dispatch mode is active."""
        only = getattr(torch._C, "_len_torch_dispatch_stack", int)() == 1
        pop = getattr(_python_dispatch, "_pop_mode_temporarily", None)
        if not (self.active and only and pop):
            yield
            return
        with pop():
            yield

    def add(self, name: str) -> None:
        """Write down an operator that runs while this is paused."""
        self._found[name, self._place(), "", False] += 1

    def saw(self, names: frozenset[str]) -> bool:
        """Was one of these operators, named without overload, called?"""
        return any(name.partition(".")[0] in names for name, *_ in self._found)

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        self._stack.append(self._names.get(id(module), ""))

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(func, torch._ops.OpOverload):
            self.inside.do(self._note, func, args, out)
        return out

    def _note(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        name = func._schema.name if func._overloadname == "default" else f"{func._schema.name}.{func._overloadname}"
        results = out if isinstance(out, (list, tuple)) else (out,)
        wide = name != LIFTED and any(isinstance(t, Tensor) and t.dtype in WIDE and t.ndim > 0 for t in results)
        place = self._place()
        if place[0] != ASHORE:
            self._found[name, place, depends(func, args), wide] += 1

    def _place(self) -> Place:
        node = _node()
        if node is not None:
            phase, *source = self._places.get(node._sequence_nr(), ("forward", "", ""))
            return (phase if phase == ASHORE else "backward", source[0], source[1])
        phase = ASHORE if self.ashore else "forward"
        place: Place = (phase, next((n for n in reversed(self._stack) if n), ""), user_line())
        number = _sequence()
        if number is not None and torch.is_grad_enabled():
            self._places[number - 1] = place
        return place


_CHANGED = {(TorchDispatchMode, "__exit__"): DISPATCH.leaving(Recorder)}


def depends(func: Any, args: tuple[Any, ...]) -> str:
    """``shape`` or ``value`` where an operator's result must be known on the host, else empty."""
    if torch.Tag.dynamic_output_shape in func.tags and func._schema.name not in STATIC_IN_PRACTICE:
        if func._schema.name == "aten::index":
            indices = args[1] if len(args) > 1 else ()
            return "shape" if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices) else ""
        return "shape"
    return "value" if torch.Tag.data_dependent_output in func.tags else ""
