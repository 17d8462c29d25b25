"""Parts of a loss that have a right sign."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .calls import LossCall


@dataclass(frozen=True, eq=False)
class Term:
    """One part of a loss that has a right sign.

    Attributes:
        function: the loss function, ``Normal.log_prob``, ``log_softmax``, …
        where: the user's line. call: the loss call, None for what is written by hand. distance: is it an error by hand?
        certain: is the other sign a fault, whatever else is meant? divergence: of a Gaussian from a fixed one?
        attracts: is it the cosine between two outputs that both are trained? surrogate: PPO's clipped surrogate?
    """

    function: str
    where: str
    certain: bool = True
    call: LossCall | None = None
    distance: bool = False
    divergence: bool = False
    attracts: bool = False
    surrogate: bool = False

    @property
    def is_loss(self) -> bool:
        """May it be weighed by sample, and enlarged beside objectives of other kinds?"""
        return self.distance or self.call is not None

    @property
    def always(self) -> bool:
        """Is its sign known beside a loss of the right sign as well?"""
        return self.divergence or self.surrogate


Terms = Mapping[Term, int]
"""Sign by term: 1 where the loss grows with the misfit, -1 where it falls."""


def joined(several: list[Terms]) -> Terms:
    """Their sum; nothing where a term enters with both signs."""
    found: dict[Term, int] = {}
    for terms in several:
        for term, sign in terms.items():
            if found.setdefault(term, sign) != sign:
                return {}
    return found


def beside_others(terms: Terms) -> Terms:
    """Beside an objective of another kind a loss may be enlarged on purpose."""
    apart = {t: sign for t, sign in terms.items() if not t.attracts}
    return {replace(t, certain=False) if t.is_loss else t: sign for t, sign in apart.items()}


def times(terms: Terms, sign: int) -> Terms:
    """The same after a factor of this sign."""
    return {term: sign * s for term, s in terms.items()}
