"""Operations that can make NaN or infinity of finite numbers, watched while every operation is followed.

In float16 any operation can, whose numbers end at 65504.
"""

import math

import torch
from torch import Tensor

from ..evidence.progress import EMPTY, HALF, Culprit
from .observer import is_plain
from .operation import Operation
from .site import user_line

DIVIDES = frozenset(("div", "rdiv", "reciprocal"))
WATCHED = DIVIDES | frozenset((
    "softmax", "log_softmax", "logsumexp", "log", "log2", "log10", "log1p", "logit", "exp", "expm1", "exp2", "sqrt",
    "rsqrt", "pow", "acos", "arccos", "asin", "arcsin", "atanh", "acosh", "lgamma", "std", "var",
    "multi_head_attention_forward", "scaled_dot_product_attention",
    "cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "mse_loss",
    "poisson_nll_loss", "gaussian_nll_loss",
))  # fmt: skip
MASKED = ("softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention")
"""Operations that minus infinity may enter: a mask."""
MOST = 1_000
"""Operations remembered."""


class Culprits:
    """Keeps the extremes of what went in and came out, on the device, until somebody asks."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, Tensor]] = []

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if inputs and not inputs[0].numel() and out.numel() == 1 and out.is_floating_point() and is_plain(out):
            value = out.detach().float().reshape(())
            self._seen.append((EMPTY + name, user_line(), torch.stack([*value.new_zeros(2).unbind(), value, value])))
        half = out.dtype is torch.float16
        if not (name in WATCHED or half) or not inputs or len(self._seen) >= MOST:
            return
        source = inputs[-1] if name in DIVIDES else inputs[0]
        if source is out or not all(is_plain(t) and t.is_floating_point() and t.numel() for t in (source, out)):
            return
        if torch.strided not in {source.layout, out.layout} or source.device != out.device:
            return
        source = source.detach()
        ends = (*(source.abs() if name in DIVIDES else source).aminmax(), *out.detach().aminmax())
        name = HALF + name if half and name not in WATCHED else name
        self._seen.append((name, user_line(), torch.stack([e.float() for e in ends])))

    def behind(self, loss: Tensor | None) -> Culprit | None:
        """The first that made NaN or infinity of what was neither, where ``loss`` is not finite. Waits for both."""
        return None if loss is None or math.isfinite(float(loss.detach())) else self.first()

    def first(self) -> Culprit | None:
        """The first one that made NaN or infinity of numbers that were neither. Waits for the device."""
        for name, where, ends in self._seen:
            low, high, out_low, out_high = ends.tolist()
            masked = name in MASKED and low == -math.inf
            fine = math.isfinite(high) and (masked or math.isfinite(low))
            if fine and not (math.isfinite(out_high) and (math.isfinite(out_low) or masked)):
                return Culprit(name, where, low, high)
        return None
