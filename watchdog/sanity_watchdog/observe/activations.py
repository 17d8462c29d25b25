"""Extremes of float16 activations in one step, module by module."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from .inside import Inside
from .names import plain_name
from .observer import is_plain


class Activations:
    """A scope in which the output of every module of ``root`` is looked at, in the order in which they return.

    The hook is torch's global one: hooks of single modules would switch off fast paths and so change results.

    Attributes:
        seen: name and class of the module of each extreme.
    """

    def __init__(self, root: nn.Module) -> None:
        self._names = {id(m): plain_name(name) for name, m in root.named_modules()}
        self.seen: list[tuple[str, str]] = []
        self._low: list[Tensor] = []
        self._high: list[Tensor] = []
        self._inside = Inside()
        self._handle: Any = None

    def __enter__(self) -> "Activations":
        self._handle = register_module_forward_hook(self._inside.hook(self._look))
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _look(self, module: nn.Module, inputs: Any, output: Any) -> None:
        name = self._names.get(id(module))
        if not name or torch.compiler.is_compiling():
            return
        for tensor in output if isinstance(output, (tuple, list)) else (output,):
            if isinstance(tensor, Tensor) and tensor.dtype is torch.float16 and tensor.numel() and is_plain(tensor):
                with torch.no_grad():
                    low, high = tensor.detach().aminmax()
                self.seen.append((name, type(module).__name__))
                self._low.append(low)
                self._high.append(high)

    def ends(self) -> Tensor:
        """``(modules, 2)`` float32: least and largest value of each output; of those on the first one's device."""
        self._inside.tell()
        device = self._low[0].device
        low, high = ([t.float().to(device) for t in ends] for ends in (self._low, self._high))
        return torch.stack([torch.stack(low), torch.stack(high)], 1)
