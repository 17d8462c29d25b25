"""Overlaps of scores and masks that are written by hand: Dice, IoU and Tversky losses, and what goes into them."""

from collections.abc import Callable

import torch
from torch import Tensor

from .bounded import thinned
from .calls import Marks, Trace
from .operation import Operation
from .operations import ADDITIONS, FACTORS, VIEWS
from .site import user_line

SCORES, SHARED, TOTAL = "scores", "shared", "total"
"""Scores or probabilities, or what keeps them such (their complement, their square); their product with a mask, summed
or not; a sum of scores and mask, or of several products."""
PASSES = VIEWS | {"sum", "mean"}
POWERS = ("pow", "square")
FOLLOWED = PASSES | FACTORS | ADDITIONS | {*POWERS}


class Overlaps:
    """Follows scores into a quotient of overlaps in one step, and notes raw ones in ``trace``.

    ``is_scored``: has a layer made a tensor, with nothing after it but what makes probabilities? ``is_given``: is it
    data of the batch? ``found`` gets each quotient of probabilities.
    """

    def __init__(
        self,
        trace: Trace,
        is_scored: Callable[[Tensor], bool],
        is_given: Callable[[Tensor], bool],
        found: Callable[[Tensor], None],
    ) -> None:
        self._trace, self._is_scored, self._is_given, self._found = trace, is_scored, is_given, found
        self._marks: Marks[tuple[str, Tensor | None]] = Marks()

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if not out.requires_grad or name not in FOLLOWED:
            return
        marks = [self._marks.get(t) or ((SCORES, None) if self._is_scored(t) else None) for t in inputs]
        kinds = [m[0] if m is not None else None for m in marks]
        ends = next((m[1] for m in marks if m is not None and m[1] is not None), None)
        if name == "div" and kinds == [SHARED, TOTAL] and ends is not None:
            low, high = ends.tolist()
            if low < 0 or high > 1:
                self._trace.overlaps.append((user_line(), low, high))
            else:
                self._found(out)
            return
        kind = self._kind(name, kinds, inputs)
        if kind == SHARED and ends is None:
            scores = inputs[kinds.index(SCORES)]
            ends = torch.stack(thinned(scores).aminmax()).float()
        if kind is not None:
            self._marks.put(out, (kind, ends))

    def _kind(self, name: str, kinds: list[str | None], inputs: list[Tensor]) -> str | None:
        """What the result is."""
        first = next((k for k in kinds if k is not None), None)
        if first is None or name in PASSES or (len(inputs) == 1 and (name in ADDITIONS or name in FACTORS)):
            return first
        if name in POWERS or (name == "mul" and len(inputs) == 2 and inputs[0] is inputs[1]):
            return first if first == SCORES else None
        if len(inputs) != 2:
            return None
        other = next((t for t, k in zip(inputs, kinds, strict=True) if k is None), None)
        if name == "mul" and other is not None and first == SCORES:
            return SHARED if inputs[0].shape == inputs[1].shape and self._is_mask(other) else None
        if name in ADDITIONS:
            return TOTAL if other is None or self._is_given(other) else None
        return None

    def _is_mask(self, tensor: Tensor) -> bool:
        if not self._is_given(tensor) or not tensor.numel():
            return False
        low, high = thinned(tensor).float().aminmax()
        return bool((low >= 0) & (high <= 1) & (high > 0))
