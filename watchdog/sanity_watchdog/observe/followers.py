"""Who follows the operations of a training step, one after the other. A new one gets its place here."""

from typing import Any, Protocol

from torch import Tensor
from torch.distributions import Distribution

from .calls import LossCall, Trace
from .codes import Codes
from .culprits import Culprits
from .cut_logs import CutLogs
from .errors import Errors
from .even_noise import EvenNoise
from .facts import TensorFacts
from .gaussians import Gaussians
from .idle_terms import IdleTerms
from .lengths import Lengths
from .logscales import LogScales
from .loss_kinds import NEVER_NEGATIVE
from .margins import Margins
from .mixtures import Mixtures
from .noise import Noise
from .operation import Operation
from .overlaps import Overlaps
from .own_draws import OwnDraws
from .penalties import Penalties
from .picked import Picked
from .rivals import Rivals, owners_of
from .run import Run
from .signs import Signs
from .squashed import Squashed
from .totals import Totals


class Follower(Protocol):
    """Keeps what it needs to know of tensors as :class:`Marks`, and tells it when it is asked."""

    def follow(self, op: Operation) -> Any:
        """An operation has run."""


class Followers:
    """All of one step.

    Args:
        trace: of the step.
        facts: what is known of its tensors, its last operation's result apart.
        run: None where there is no optimizer.
        samples: of the batch.
    """

    def __init__(self, trace: Trace, facts: TensorFacts, run: Run | None, samples: int = 0) -> None:
        gaussians = Gaussians()
        self.culprits = Culprits()
        self.noise = Noise(facts.is_made)
        self.mixtures = Mixtures(self.noise)
        self.penalties = Penalties()
        self.lengths = Lengths()
        self.even = EvenNoise(facts.is_given)
        self.codes = Codes(gaussians, lambda t: bool(self.noise.of(t)), facts.is_made, self.even.of)
        self.idle = IdleTerms(trace.cuts.get)
        self.scales = LogScales(lambda t: any(c.value is t and c.name in NEVER_NEGATIVE for c in trace.calls))
        self.signs = Signs(facts, gaussians, run is not None and all(p.requires_grad for p in run.module.parameters()))
        self.errors = Errors(facts)
        self.squashed = Squashed()
        self.totals = Totals(trace)
        self.own = OwnDraws(samples)
        self.cut_logs = CutLogs(facts)
        self.margins = Margins(facts)
        self.rivals = Rivals(owners_of(run), trace.calls)
        overlaps = Overlaps(trace, facts.is_scored, facts.is_given, lambda t: self.signs.fits("overlap", t))
        self._all: tuple[Follower, ...] = (
            self.culprits,
            overlaps,  # before the signs, which it tells what it finds
            self.noise,
            self.mixtures,
            self.even,
            self.penalties,
            self.lengths,
            self.codes,
            self.idle,
            self.scales,
            self.signs,
            self.errors,
            self.squashed,
            self.totals,
            self.rivals,
            self.own,
            self.cut_logs,
            self.margins,
            Picked(trace, facts),
        )

    def follow(self, op: Operation) -> None:
        """An operation has run."""
        for one in self._all:
            one.follow(op)

    def called(self, call: LossCall) -> None:
        """A loss function was called."""
        self.idle.called(call)
        self.noise.called(call)
        self.mixtures.called(call)
        self.even.called(call)
        self.signs.called(call)

    def likelihood(self, distribution: Distribution, value: Any, result: Any) -> None:
        """``distribution.log_prob(value)`` was called."""
        self.codes.scored(value)
        self.signs.likelihood(distribution, value, result)

    def written(self, target: Tensor, sources: list[Tensor]) -> None:
        """``target`` was written to."""
        self.noise.written(target, sources)
