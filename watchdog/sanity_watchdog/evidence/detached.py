"""Losses and terms of a loss through which no gradient flows."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True)
class Cut:
    """Where a value lost its gradient history.

    Attributes:
        operation: ``argmax``, ``detach``, ``no_grad``, ``item``, …
        where: the user's line.
    """

    operation: str
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class DetachedLoss(Evidence):
    """The loss that the step returned, and whether a gradient can flow from it.

    Attributes:
        attached: does it have a gradient history that ends in a parameter?
        history: does it have one at all?
        cut: where the history ends, where that was seen.
    """

    attached: bool
    history: bool = False
    cut: Cut | None = None


@dataclass(frozen=True, kw_only=True)
class DetachedTerm(DetachedLoss):
    """A term of the loss, compared by ``function`` at ``where``, through which no gradient flows."""

    attached: bool = True
    function: str
    where: str

    @property
    def scope(self) -> str:
        return self.where
