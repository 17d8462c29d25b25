"""Where a step squashes values by ``torch.tanh``. A sigmoid is mostly a gate, which may start open or closed."""

from torch import Tensor

from .operation import Operation
from .site import user_line

MOST = 64
"""Results that are kept."""


class Squashed:
    """Results with a gradient, and the user's line."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, str]] = []

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        if op.name == "tanh" and op.out.requires_grad and len(self.seen) < MOST:
            self.seen.append((op.out, user_line()))
