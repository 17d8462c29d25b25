"""What the signs of a step's terms say, once its loss is known."""

from functools import partial

from torch import Tensor

from ..evidence.detached import DetachedTerm
from ..evidence.losses import CutLoss, Likelihood
from ..evidence.targets import DrawnNoise, TargetRange
from .calls import Trace
from .codes import EVEN
from .followers import Followers
from .moment import Moment
from .nodes import nodes
from .signs import Signs

WHITENING = ("LinalgCholesky", "LinalgSvd", "LinalgEigh", "LinalgInv", "LinalgSolve", "TriangularSolve")
ORTHOGONAL = ("LinalgMatrixExp", "LinalgHouseholder", "LinalgQr")
"""Beginnings of the names of nodes that keep outputs apart, whatever pulls them together."""


class Telling:
    """Asks the ``followers`` of one step at its backward passes. ``signed``: is it known which way losses are to go?"""

    def __init__(self, followers: Followers, trace: Trace, signed: bool = True) -> None:
        self._followers, self._trace, self._signed = followers, trace, signed

    def lowers(self, loss: Tensor) -> bool:
        """Is minus a term of its right sign in it, whatever is meant?"""
        return self._signed and any(sign < 0 for sign in self._followers.signs.of(loss).values())

    def tell(self, at: Moment, loss: Tensor) -> None:
        """Say which parts of a loss have no gradient, and which the wrong sign: to their calls, or as evidence."""
        for idle in self._followers.idle.of(loss)[:1]:
            at.emit(DetachedTerm(function=idle.function, where=idle.where, cut=idle.cut, **at.tags()))
        for cut in self._followers.cut_logs.found:
            at.emit(CutLoss(function="log", where=cut.where, low=cut.low, high=cut.high, edges=cut.edges, **at.tags()))
        if (hinge := self._followers.margins.found) is not None:
            made = partial(TargetRange, function="hinge", where=hinge.where, low=0, high=1, dtype=hinge.dtype)
            at.emit(made(valid=hinge.total, total=hinge.total, shape=hinge.shape, **at.tags()))
        if self._signed:
            self._tell_signs(at, loss)

    def _tell_signs(self, at: Moment, loss: Tensor) -> None:
        self._trace.pulled.append(pulled(self._followers.signs, loss))
        for term in self._followers.signs.wrong(loss):
            if term.call is not None:
                term.call.flipped = True
            else:
                value = float(loss.detach().sum()) * (-1 if term.distance else 1)
                made = partial(Likelihood, divergence=term.divergence, distance=term.distance, surrogate=term.surrogate)
                at.emit(made(function=term.function, where=term.where, value=value, **at.tags()))

        self._tell_noise(at)
        for where in self._followers.scales.falling(loss)[:1]:
            at.emit(
                Likelihood(function="log-scale", where=where, value=float(loss.detach().sum()), scale=True, **at.tags())
            )

    def _tell_noise(self, at: Moment) -> None:
        found = [DrawnNoise(kind=kind, where=where, **at.tags()) for kind, where in self._followers.codes.found()]
        for one in self._followers.noise.unseen():
            found.append(DrawnNoise(kind="unseen", where=one.where, origin=one.other, **at.tags()))
        if copied := self._followers.mixtures.copied():
            found.append(DrawnNoise(kind="copied", where=copied, **at.tags()))
        for where in self._followers.even.found():
            found.append(DrawnNoise(kind=EVEN, where=where, **at.tags()))
        for evidence in found[:1] or [DrawnNoise(**at.tags())]:
            at.emit(evidence)


def pulled(signs: Signs, loss: Tensor) -> tuple[str, ...]:
    """Lines that pull trained outputs together, where nothing else is in the loss and no layer keeps them apart."""
    terms = signs.pulled(loss)
    if any(node.name().startswith(WHITENING + ORTHOGONAL) for node in (nodes(loss) if terms else ())):
        return ()
    return tuple(dict.fromkeys(term.where for term in terms))
