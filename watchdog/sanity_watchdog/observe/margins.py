"""Hinges by hand, of scores times labels that are 0 and 1 where -1 and 1 are meant."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .calls import Marks
from .facts import TensorFacts
from .observer import is_plain
from .operation import Operation
from .operations import EXTREMES, RESHAPES
from .site import user_line

MOST = 1 << 16
"""Labels that are looked at."""
CUTS = ("clamp", "clamp_min", "clip")


@dataclass(frozen=True)
class Hinge:
    """Its line, how many labels there are, their format, and their shape."""

    where: str
    total: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Margin:
    """``scores`` times ``labels``; ``falls``: minus that. ``gap``: a number minus that."""

    scores: Tensor
    labels: Tensor
    falls: bool = False
    gap: bool = False


class Margins:
    """Follows products of a layer's scores and labels, of whose tensors the ``facts`` are known.

    A mask looks like labels; where one is meant another term has what it hides. So nothing else may be done with these
    scores that has a gradient.
    """

    def __init__(self, facts: TensorFacts) -> None:
        self._facts = facts
        self._margins: Marks[_Margin] = Marks()
        self._weighed: Marks[bool] = Marks()
        self._uses: Marks[int] = Marks()
        self._hinges: list[tuple[Tensor, Hinge]] = []

    @property
    def found(self) -> Hinge | None:
        """The first one of scores that go into nothing else."""
        return next((hinge for scores, hinge in self._hinges if self._uses.get(scores) == 1), None)

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if not out.requires_grad or op.is_weighed or op.first is None:
            return
        for one in inputs:
            if name not in RESHAPES and self._facts.of(one).is_raw:
                self._uses.put(one, (self._uses.get(one) or 0) + 1)
        margin = next((m for t in inputs if (m := self._margins.get(t)) is not None), None)
        if margin is None:
            if name == "mul" and len(inputs) == 2:
                self._begin(inputs[0], inputs[1], out)
            return
        rest = [t for t in inputs if self._margins.get(t) is None]
        if name == "relu" or (name in CUTS and op.argument("min", 1) == 0 and op.argument("max", 2) is None):
            self._end(margin)
        elif name in EXTREMES and len(rest) == 1:
            if not rest[0].requires_grad and is_plain(rest[0]) and not bool(rest[0].any()):
                self._end(margin)
        elif rest or (margin.gap and name not in RESHAPES):
            return
        elif name in RESHAPES:
            self._margins.put(out, margin)
        elif name == "neg":
            self._margins.put(out, replace(margin, falls=not margin.falls))
        elif (name == "rsub" and not margin.falls) or (name == "add" and margin.falls):
            self._margins.put(out, replace(margin, gap=True))

    def _begin(self, one: Tensor, other: Tensor, out: Tensor) -> None:
        scores, labels = (one, other) if one.requires_grad else (other, one)
        if labels.numel() == 1 or labels.requires_grad or self._weighed.get(scores):
            return
        self._weighed.put(out, True)
        fits = scores.shape == labels.shape and labels.dtype != torch.bool and labels.numel() <= MOST
        if fits and self._facts.of(scores).is_raw and self._facts.is_given(labels) and is_plain(labels):
            low, high = (float(end) for end in labels.detach().aminmax())
            if low == 0 and high == 1 and bool(((labels == 0) | (labels == 1)).all()):
                self._margins.put(out, _Margin(scores, labels))

    def _end(self, margin: _Margin) -> None:
        if margin.gap:
            labels = margin.labels
            dtype = str(labels.dtype).removeprefix("torch.")
            self._hinges.append((margin.scores, Hinge(user_line(), labels.numel(), dtype, tuple(labels.shape))))
