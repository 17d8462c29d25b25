"""What share of the values a call of a dropout function drops."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from .site import user_line

FLAGGED: tuple[Callable[..., Any], ...] = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
    torch.dropout,
    torch.alpha_dropout,
    torch.feature_dropout,
    torch.feature_alpha_dropout,
)
"""Functions of ``(input, p, training)``."""
ATTENTION, HEADS = F.scaled_dot_product_attention, F.multi_head_attention_forward


def dropped(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float:
    """Share of the values that this call drops; 0 for any other function."""
    if function in FLAGGED:
        rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    elif function is HEADS:
        rate = kwargs.get("dropout_p", args[9] if len(args) > 9 else 0.0)
        training = kwargs.get("training", True)
    elif function is ATTENTION:
        rate, training = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0), True
    else:
        return 0.0
    return float(rate) if training else 0.0


def note_dropout(
    drops: set[tuple[str, float, str]], function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Add what a call drops, by function, share and the user's line."""
    rate = dropped(function, args, kwargs)
    if rate > 0:
        drops.add((function.__name__, rate, user_line()))
