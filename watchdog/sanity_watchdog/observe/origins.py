"""Which activation made a tensor, and over which axis."""

from typing import Any

from torch import Tensor

from ..evidence.losses import Origin
from .operations import ACTIVATIONS
from .site import user_line


def origin_of(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor, raw: bool = False, of: Origin | None = None
) -> Origin | None:
    """The activation that a call is, None for other functions; ``raw`` scores of a layer may be clamped as well.

    ``of`` is the one that made its argument: the exponential of a ``log_softmax`` is a softmax.
    """
    if name == "exp" and of is not None and of.name == "log_softmax":
        return Origin("softmax", of.shape, of.axis, user_line())
    if raw and name in ("clamp", "clip"):
        return Origin("clamp", tuple(out.shape), None, user_line())
    plain = name.replace("log_sigmoid", "logsigmoid")
    if plain not in ACTIVATIONS:
        return None
    axis = kwargs.get("dim", next((a for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)), None))
    if plain not in ("softmax", "log_softmax"):
        axis = None
    elif axis is None:
        axis = 0 if out.ndim in (0, 1, 3) else 1
    return Origin(plain, tuple(out.shape), axis if axis is None else axis % max(out.ndim, 1), user_line())
