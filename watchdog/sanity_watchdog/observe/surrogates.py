"""PPO's clipped surrogate: of two products with one advantage, one of which has its ratio clipped, an extreme."""

import math

from torch import Tensor

from .calls import Marks
from .operation import Operation
from .operations import VIEWS

CLIPS = ("clamp", "clip")
SMALLER, LARGER = ("min", "minimum"), ("max", "maximum")


class Surrogates:
    """Follows ratios through one step."""

    def __init__(self) -> None:
        self._roots: Marks[tuple[object, int]] = Marks()
        self._clipped: Marks[object] = Marks()
        self._products: Marks[tuple[object, bool, tuple[object, int]]] = Marks()

    def follow(self, op: Operation) -> int:
        """An operation has run: 1 for the larger of two such products, which is a loss; -1 for the smaller; else 0."""
        name, inputs, out = op.name, op.inputs, op.out
        if name == "neg" and inputs:
            root, sign = self._root(inputs[0])
            self._roots.put(out, (root, -sign))
            product = self._products.get(inputs[0])
            if product is not None:
                self._products.put(out, (*product[:2], (product[2][0], -product[2][1])))
        elif name in VIEWS and name not in CLIPS and inputs:
            self._view(inputs[0], out)
        elif not out.requires_grad:
            return 0
        elif name in CLIPS and inputs and _is_around_one(op):
            self._clipped.put(out, self._root(inputs[0])[0])
        elif name == "mul":
            self._multiply(inputs, out)
        elif name in SMALLER + LARGER and len(inputs) == 2:
            a, b = (self._products.get(t) for t in inputs)
            if a is not None and b is not None and a[0] is b[0] and a[1] != b[1] and a[2] == b[2]:
                return -1 if name in SMALLER else 1
        return 0

    def _root(self, tensor: Tensor) -> tuple[object, int]:
        root = self._roots.get(tensor)
        if root is None:
            root = object(), 1
            self._roots.put(tensor, root)
        return root

    def _view(self, tensor: Tensor, out: Tensor) -> None:
        clipped, product = self._clipped.get(tensor), self._products.get(tensor)
        if clipped is not None:
            self._clipped.put(out, clipped)
        if product is not None:
            self._products.put(out, product)

    def _multiply(self, inputs: list[Tensor], out: Tensor) -> None:
        learned = [t for t in inputs if t.requires_grad]
        given = [t for t in inputs if not t.requires_grad]
        if len(learned) == len(given) == 1:
            clipped = self._clipped.get(learned[0])
            ratio = self._root(learned[0])[0] if clipped is None else clipped
            self._products.put(out, (ratio, clipped is not None, self._root(given[0])))


def _is_around_one(op: Operation) -> bool:
    limits = op.argument("min", 1), op.argument("max", 2)
    ends = [float(e) if isinstance(e, (int, float)) else math.nan for e in limits]
    return 0 <= ends[0] < 1 < ends[1]
