"""What share of the values a call of a dropout function drops."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from .loss_kinds import BINARY_LOSSES, CLASS_LOSSES, DISTANCES
from .operations import VIEWS
from .site import user_line

if TYPE_CHECKING:
    from .calls import Trace
    from .operation import Operation

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


def note_dropout(trace: "Trace", op: "Operation", raw: bool) -> None:
    """Write down what a call drops; if ``raw`` scores of a layer, in its result and views of it as well."""
    rate = dropped(op.function, op.args, op.kwargs)
    if rate > 0:
        trace.drops.add((op.function.__name__, rate, user_line()))
        if raw and op.function in FLAGGED:
            trace.dropped.put(op.out, (rate, user_line()))
    elif op.name in VIEWS and op.inputs and (mark := trace.dropped.get(op.inputs[0])) is not None:
        trace.dropped.put(op.out, mark)


def dropped_outputs(trace: "Trace") -> Iterator[tuple[str, float, str]]:
    """Losses whose predictions were dropped after the last layer: function, share, the user's line."""
    for call in trace.calls:
        mark = trace.dropped.get(call.prediction)
        judged = call.name in CLASS_LOSSES + BINARY_LOSSES or (call.name in DISTANCES and call.given)
        if mark is not None and judged and getattr(call.value, "requires_grad", False):
            yield (call.name, *mark)
