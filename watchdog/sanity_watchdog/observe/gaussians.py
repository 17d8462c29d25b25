"""Recognises the divergence of a Gaussian from a fixed one by its algebra: m² + v - ln v, but for factor and constant.

Sums of tensors are followed as linear forms over atoms: a tensor of unknown making, or the square, exponential or
logarithm of a form.
"""

from collections.abc import Hashable, Mapping
from itertools import count
from typing import Any

from torch import Tensor

from .calls import Marks
from .distances import squares
from .operation import Operation
from .operations import ADDITIONS

Atom = tuple[str, Hashable]
"""Its kind, and what it is of."""
Form = Mapping[Atom, float]
"""Factor by atom."""
MOST = 8
"""Atoms of a form that is followed."""
FIXED, LEARNED, MIXED = "fixed", "learned", "mixed"
"""Kinds of atoms of unknown making: without a gradient, with one, a product of two that have one."""
SAME = ("expand", "expand_as", "contiguous", "clone")
PRODUCTS = ("mul", "div", "neg")


class Gaussians:
    """Follows forms through one step."""

    def __init__(self) -> None:
        self._forms: Marks[Form] = Marks()
        self._names = count()
        self.divergences: list[Form] = []

    def follow(self, op: Operation) -> int:
        """An operation has run; 1 or -1 where its result is such a divergence, or minus one, 0 else."""
        name, args, out = op.name, op.args, op.out
        if op.is_weighed:
            return 0
        if name in SAME and args and isinstance(args[0], Tensor) and args[0].shape == out.shape:
            self._forms.put(out, self.of(args[0]))
            return 0
        found = self._sum(name, args) if name in ADDITIONS else self._product(name, args) if name in PRODUCTS else None
        if found is None:
            found = self._atom(op)
        if found is None or len(found) > MOST:
            return 0
        self._forms.put(out, found)
        sign = _sign(found) if name in ADDITIONS else 0
        if sign:
            self.divergences.append(found)
        return sign

    def of(self, tensor: Tensor) -> Form:
        """The form of a tensor; its own atom where nothing is known of its making."""
        known = self._forms.get(tensor)
        if known is None:
            known = self._new(LEARNED if tensor.requires_grad else FIXED)
            self._forms.put(tensor, known)
        return known

    def _new(self, kind: str) -> Form:
        return {(kind, next(self._names)): 1.0}

    def _sum(self, name: str, args: tuple[Any, ...]) -> Form | None:
        if len(args) < 2:
            return None
        signs = {"sub": (1, -1), "rsub": (-1, 1)}.get(name, (1, 1))
        total: dict[Atom, float] = {}
        for part, sign in zip(args[:2], signs, strict=True):
            if isinstance(part, Tensor):
                for atom, factor in self.of(part).items():
                    total[atom] = total.get(atom, 0.0) + sign * factor
            elif not isinstance(part, (int, float)):
                return None
        return total

    def _product(self, name: str, args: tuple[Any, ...]) -> Form | None:
        if name == "neg":
            return _times(self.of(args[0]), -1.0)
        numbers = [a for a in args[:2] if isinstance(a, (int, float))]
        tensors = [a for a in args[:2] if isinstance(a, Tensor)]
        if len(tensors) == 2 and tensors[0] is not tensors[1] and all(t.requires_grad for t in tensors):
            return self._new(MIXED)
        if len(numbers) != 1 or len(tensors) != 1 or not numbers[0]:
            return None
        if name == "div":
            return _times(self.of(tensors[0]), 1 / numbers[0]) if args[0] is tensors[0] else None
        return _times(self.of(tensors[0]), float(numbers[0]))

    def _atom(self, op: Operation) -> Form | None:
        if op.first is None:
            return None
        inner = self.of(op.first)
        if squares(op):
            kind, exponent = next(iter(inner)) if len(inner) == 1 else ("", None)
            if kind == "exp" and isinstance(exponent, frozenset):  # the square of e^x is e^2x
                return {("exp", _fixed(_times(dict(exponent), 2.0))): 1.0}
            return {("square", _fixed(inner)): 1.0}
        return {(op.name, _fixed(inner)): 1.0} if op.name in ("exp", "log") else None


def _times(form: Form, factor: float) -> Form:
    return {atom: factor * f for atom, f in form.items()}


def _fixed(form: Form) -> frozenset[tuple[Atom, float]]:
    return frozenset(form.items())


def variance_of(form: Form) -> Atom | None:
    """The variance in such a divergence."""
    found = (_variance(atom, factor, form)[0] for atom, factor in form.items())
    return next((atom for atom in found if atom is not None), None)


def _sign(form: Form) -> int:
    """The sign of v, where the form holds v and minus ln v, and the square of something else with the sign of v."""
    for atom, factor in form.items():
        variance, sign = _variance(atom, factor, form)
        means = (f for a, f in form.items() if a != variance and _is_mean(a))
        if sign and any(f * sign > 0 for f in means):
            return sign
    return 0


def _is_mean(atom: Atom) -> bool:
    """Is it the square of one learned value, or of its distance from a fixed one?"""
    kind, inner = atom
    kinds = [a[0] for a, _ in inner] if kind == "square" and isinstance(inner, frozenset) else []
    return kinds.count(LEARNED) == 1 and MIXED not in kinds


def _variance(atom: Atom, factor: float, form: Form) -> tuple[Atom | None, int]:
    """The atom of v and its sign, where ``atom`` is one of the two of v and ln v, and the other is there as well."""
    kind, inner = atom
    if not isinstance(inner, frozenset):
        return None, 0
    if kind == "exp" and all(form.get(a, 0.0) * f * factor < 0 for a, f in inner):
        return atom, 1 if factor > 0 else -1
    if kind == "log":
        plain = next(iter(inner))[0] if len(inner) == 1 else None
        for variance in (plain, ("square", inner)):
            if variance is not None and form.get(variance, 0.0) * factor < 0:
                return variance, -1 if factor > 0 else 1
    return None, 0
