"""Weights and buffers that were not finite before the loss was: then they are why."""

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from ..evidence.progress import Spoiled
from .ledger import number_on_host
from .names import plain_name
from .observer import is_plain
from .run import Run


def spoiled(loss: Tensor, run: Run, first: bool) -> Spoiled | None:
    """The first such parameter, or NaN of a buffer in the ``first`` step, where a ``loss`` on the host is not finite.

    Norm layers have written to their buffers by then, and infinities in others may be a mask.
    """
    number = number_on_host(loss) if loss.numel() == 1 and is_plain(loss) else None
    if number is None or number - number == 0:
        return None
    for name, parameter in run.module.named_parameters():
        if parameter.requires_grad and not _is_finite(parameter):
            states = [o.state[parameter] for o in run.optimizers if parameter in o.state]
            kept = [
                v for state in states for v in state.values() if isinstance(v, Tensor) and v.shape == parameter.shape
            ]
            return Spoiled(plain_name(name), bool(kept) and all(map(_is_finite, kept)))
    owners = [(n, m) for n, m in run.module.named_modules() if first and not isinstance(m, _NormBase)]
    for path, owner in owners:
        for name, buffer in owner.named_buffers(recurse=False):
            if not _is_finite(buffer) and is_plain(buffer) and bool(buffer.isnan().any()):
                return Spoiled(plain_name(f"{path}.{name}" if path else name), True)
    return None


@torch.no_grad()
def _is_finite(tensor: Tensor) -> bool:
    """True for what cannot be looked at without waiting."""
    if not (is_plain(tensor) and tensor.is_cpu and tensor.is_floating_point() and tensor.layout is torch.strided):
        return True
    return bool(tensor.isfinite().all())
