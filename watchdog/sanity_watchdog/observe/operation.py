"""One operation of a step that is followed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from .calls import tensors_of
from .operations import LIKE_ANOTHER, name_of


@dataclass(frozen=True, eq=False)
class Operation:
    """A call of one of torch's functions that has returned.

    Attributes:
        function: what was called. args, kwargs: what it was given.
        out: what it returned, or that at ``index`` of several.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Tensor
    index: int = 0

    @cached_property
    def name(self) -> str:
        """The function's name, as in ``operations``."""
        return name_of(self.function)

    @cached_property
    def inputs(self) -> list[Tensor]:
        """Tensors among the arguments, also those in lists; not those of which only the shape or format is asked."""
        given = self.args[:1] if self.name in LIKE_ANOTHER else (*self.args, *self.kwargs.values())
        return [t for a in given for t in tensors_of(a, 1)]

    @property
    def first(self) -> Tensor | None:
        """The first argument, where it is a tensor."""
        return self.args[0] if self.args and isinstance(self.args[0], Tensor) else None

    @property
    def is_weighed(self) -> bool:
        """Has it an option that scales one of its terms, maybe below zero?"""
        return "alpha" in self.kwargs

    def argument(self, name: str, place: int, default: Any = None) -> Any:
        """An argument given by name, or at its place."""
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else default)
