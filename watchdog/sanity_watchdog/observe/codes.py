"""How a variational network draws its codes: is the noise scaled by the deviation, and does a gradient flow?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .calls import Marks
from .gaussians import LEARNED, Atom, Form, Gaussians, variance_of
from .operation import Operation
from .operations import LAYERS, RECURRENT, RESHAPES, SUBTRACTS
from .site import user_line

ALIKE = RESHAPES | {"expand", "expand_as", "detach", "clone", "contiguous", "float", "to"}
MOST = 32
"""Codes and divergences of a step that are looked at."""
LOG, VARIANCE, CUT, EVEN = "log", "variance", "cut", "even"


@dataclass(eq=False)
class _Code:
    """Codes drawn at ``where`` around ``means`` without a gradient. ``enters``: a layer? ``scored``: its likelihood?"""

    where: str
    means: frozenset[Atom]
    enters: bool = False
    scored: bool = False


class Codes:
    """Follows codes through one step; ``drawn`` are those through which a gradient flows.

    ``is_noise``: is a tensor made of draws alone? ``is_made``: of data? ``is_even``: of draws from 0 to 1?
    """

    def __init__(
        self,
        gaussians: Gaussians,
        is_noise: Callable[[Tensor], bool],
        is_made: Callable[[Tensor], bool],
        is_even: Callable[[Tensor], bool],
    ) -> None:
        self._gaussians, self._is_noise, self._is_made, self._is_even = gaussians, is_noise, is_made, is_even
        self._even: list[tuple[str, Form]] = []
        self._roots: Marks[frozenset[Atom]] = Marks()
        self._spread: Marks[bool] = Marks()
        self._codes: Marks[_Code] = Marks()
        self._cut: list[_Code] = []
        self.drawn: list[Tensor] = []
        self._scales: list[tuple[str, Form]] = []
        self._learned: set[frozenset[Atom]] = set()
        self._standardised: dict[Atom, frozenset[Atom]] = {}

    def found(self) -> list[tuple[str, str]]:
        """What is wrong with the codes whose divergence the step knows: kind and line."""
        divergences = self._gaussians.divergences[:MOST]
        found = [
            (kind, where)
            for where, scale in self._scales
            for kind in {_mistaken(scale, variance_of(form)) for form in divergences}
            if kind
        ]
        roots = {atom for form in divergences for atom in _leaves(form)}
        found += [(EVEN, where) for where, scale in self._even if not roots.isdisjoint(_leaves(scale))]
        means = {atom for form in divergences for kind, inner in form if kind == "square" for atom, _ in _pairs(inner)}
        means = means.union(*(self._standardised.get(atom, ()) for atom in means))
        for code in self._cut:
            if code.enters and not code.scored and code.means & means and code.means not in self._learned:
                found.append((CUT, code.where))
        return found

    def scored(self, value: Any) -> None:
        """The likelihood of a value was asked for."""
        code = self._codes.get(value)
        if code is not None:
            code.scored = True

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        name, inputs, out = op.name, op.inputs, op.out
        if name == "normal" and len(inputs) >= 2 and any(self._means_of(t) for t in inputs[:2]):
            self._draw(self._means_of(inputs[0]), out)
        elif name in ALIKE and inputs:
            self._pass_on(inputs[0], out)
        elif name == "mul" and len(inputs) == 2:
            self._scale(inputs, out)
        elif name == "add" and len(inputs) == 2:
            self._shift(inputs, out)
        elif name in SUBTRACTS and len(inputs) == 2:
            for code, mean in (inputs, inputs[::-1]):
                if self._codes.get(code) is not None and self._means_of(mean):
                    self.scored(code)
        elif name == "div" and len(inputs) == 2 and not inputs[1].requires_grad:
            for atom in self._gaussians.of(out):
                self._standardised[atom] = self._means_of(inputs[0])
        elif name in LAYERS or name in RECURRENT:
            for entered in filter(None, map(self._codes.get, inputs)):
                entered.enters |= out.requires_grad

    def _means_of(self, tensor: Tensor) -> frozenset[Atom]:
        known = self._roots.get(tensor)
        if known is None and tensor.requires_grad:
            known = frozenset(self._gaussians.of(tensor))
        return known or frozenset()

    def _pass_on(self, tensor: Tensor, out: Tensor) -> None:
        if out.shape == tensor.shape and (means := self._means_of(tensor)):
            self._roots.put(out, means)
        code = self._codes.get(tensor)
        if code is not None:
            self._codes.put(out, code)

    def _draw(self, means: frozenset[Atom], out: Tensor) -> None:
        code = _Code(user_line(), means)
        self._codes.put(out, code)
        if len(self._cut) < MOST:
            self._cut.append(code)

    def _scale(self, inputs: list[Tensor], out: Tensor) -> None:
        even = [self._is_even(t) for t in inputs]
        if even.count(True) == 1 and len(self._even) < MOST and out.requires_grad:
            self._even.append((user_line(), self._gaussians.of(inputs[even.index(False)])))
        noise = [self._is_noise(t) for t in inputs]
        if noise.count(True) != 1:
            return
        scale = inputs[noise.index(False)]
        if scale is not out and self._is_made(scale):
            self._spread.put(out, out.requires_grad)
            if scale.requires_grad and len(self._scales) < MOST:
                self._scales.append((user_line(), self._gaussians.of(scale)))

    def _shift(self, inputs: list[Tensor], out: Tensor) -> None:
        spread = [self._spread.get(t) for t in inputs]
        if spread.count(None) != 1:
            return
        means = self._means_of(inputs[spread.index(None)])
        if out.requires_grad:
            self._learned.add(means)
            if len(self.drawn) < MOST:
                self.drawn.append(out)
        elif means:
            self._draw(means, out)


def _pairs(inner: Any) -> list[tuple[Atom, float]]:
    return list(inner) if isinstance(inner, frozenset) else []


def _leaves(form: Form) -> Iterator[Atom]:
    """Atoms of unknown making, also within others."""
    for kind, inner in form:
        if isinstance(inner, frozenset):
            yield from _leaves(dict(inner))
        else:
            yield kind, inner


def _mistaken(scale: Form, variance: Atom | None) -> str:
    """What noise is multiplied by in place of the root of the ``variance``; empty where that is right or unknown."""
    kind, exponent = variance or ("", None)
    logarithm = dict(_pairs(exponent))
    if kind != "exp" or not logarithm or any(atom[0] != LEARNED for atom in logarithm):
        return ""
    if set(scale) == set(logarithm):
        return LOG
    if len(scale) == 1 and next(iter(scale)) == variance:
        return VARIANCE
    return ""
