"""Attention written by hand that no mask keeps from padding."""

from dataclasses import dataclass

from torch import Tensor

from .calls import Marks, Trace
from .observer import is_plain
from .operation import Operation
from .operations import VIEWS
from .site import user_line
from .weighing import CONTRACTIONS

LEAST = 1e-9
"""A weight that no mask has made: scores of fresh weights differ by less than twenty."""
MOST = 4
"""Softmaxes kept of a step."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A softmax at ``where`` over the positions of ``ids``, each ``(samples, positions)``; its ``least`` weight."""

    where: str
    ids: tuple[Tensor, ...]
    least: Tensor


class Unmasked:
    """Follows softmaxes over positions in one step, until their weights sum up values that have features."""

    def __init__(self) -> None:
        self._weights: Marks[Weights] = Marks()
        self._used: list[tuple[Weights, Tensor]] = []
        self._hidden: set[Weights] = set()

    def follow(self, op: Operation, trace: Trace) -> None:
        """One operation on values made from the batch."""
        if not op.out.requires_grad:
            return
        if op.name == "softmax":
            self._begin(op, trace)
            return
        found = next(((t, w) for t in op.inputs if (w := self._weights.get(t)) is not None), None)
        if found is None:
            return
        given, weights = found
        others = [t for t in op.inputs if t is not given]
        if not others and (op.name in VIEWS or op.name == "dropout"):
            self._weights.put(op.out, weights)
        elif any(not t.requires_grad and t.numel() > 1 for t in others):
            self._hidden.add(weights)
        elif (
            op.name in CONTRACTIONS
            or op.name == "einsum"
            or (op.name == "mul" and others and op.out.numel() > given.numel())
        ):
            # values that a mask has made zero add nothing, whatever they weigh
            blank = [(t.detach() == 0).all(-1).any() for t in others if t.ndim > 1]
            self._used += [(weights, b) for b in blank[:1]]

    def _begin(self, op: Operation, trace: Trace) -> None:
        axis, out = op.argument("dim", 1), op.out
        if not isinstance(axis, int) or not 2 <= out.ndim <= 4 or len(self._used) >= MOST or not is_plain(out):
            return
        shape = (len(out), out.shape[axis])
        # an embedding that knows its padding makes zeros of it: they weigh, but add nothing
        looked = (f for f in trace.frontier if f.ids is not None and f.operation.argument("padding_idx", 2) is None)
        ids = tuple(f.ids for f in looked if f.ids is not None and tuple(f.ids.shape) == shape and is_plain(f.ids))
        if ids and axis % out.ndim:
            self._weights.put(out, Weights(user_line(), ids, out.detach().amin()))

    def found(self) -> list[Weights]:
        """Those that were used, and of which nothing is hidden. Waits for the device."""
        used = (w for w, blank in self._used if w not in self._hidden and not blank)
        return [w for w in used if float(w.least) > LEAST]
