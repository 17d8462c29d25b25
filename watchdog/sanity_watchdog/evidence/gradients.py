"""Gradients as an optimizer is about to apply them."""

from dataclasses import dataclass

from .base import Evidence
from .progress import Culprit


@dataclass(frozen=True, kw_only=True)
class BadGradients(Evidence):
    """Which gradients are NaN or infinite before a step.

    Attributes:
        bad: parameters whose gradient is not finite, those nearest to the loss first.
        last_finite: parameter with a finite gradient that is next to the first bad one on the loss's side, if any.
        measured: gradients looked at.
        infinite: is one of them infinite (not only NaN)?
        loss_finite: was the loss finite?
        weights_finite: were all parameters finite?
        scale: the loss scale; 1 without a scaler.
        scaled: is there a live loss scaler, which skips such steps?
        operations: differentiated operations between the loss and the first bad parameter whose derivative can be
            infinite, from the loss on.
        culprit: the operation that made NaN or infinity of finite numbers in the same step, where all were followed.
    """

    bad: tuple[str, ...]
    last_finite: str
    measured: int
    infinite: bool
    loss_finite: bool
    weights_finite: bool
    scale: float = 1.0
    scaled: bool = False
    operations: tuple[str, ...] = ()
    culprit: Culprit | None = None


@dataclass(frozen=True, kw_only=True)
class DepthProfile(Evidence):
    """How gradients change along the depth, at the first samples.

    Attributes:
        slopes: per sample, octaves per layer by which the root mean square grows towards the output (least squares over
            the weight matrices in registration order).
        layers: matrices in the last sample.
        first, last: first and last matrix, by name.
        smallest, largest: log2 of the smallest and largest root mean square of the last sample.
    """

    slopes: tuple[float, ...]
    layers: int
    first: str
    last: str
    smallest: float
    largest: float

    @property
    def span(self) -> float:
        """Octaves over the whole depth, at the median slope."""
        return sorted(self.slopes)[len(self.slopes) // 2] * (self.layers - 1) if self.slopes else 0.0


@dataclass(frozen=True, kw_only=True)
class GradientSizes(Evidence):
    """Largest gradients over the run, unscaled and before clipping.

    Attributes:
        largest: largest magnitude of any element at the last samples, the newest last.
        start: median of it over the first samples.
        samples: samples so far.
        ratio: L2 norm of all gradients over that of all parameters, now.
        name: parameter with the largest element now.
        batch: training batch that it came from.
        adaptive: does the optimizer divide by the gradient's size?
        clipped: are gradients clipped after this?
        span: octaves by which gradients grow over the depth towards the output, at the first samples; 0 later.
        layers: matrices that ``span`` was taken over.
    """

    largest: tuple[float, ...]
    start: float
    samples: int
    ratio: float
    name: str
    batch: int
    adaptive: bool
    clipped: bool
    span: float = 0.0
    layers: int = 0


@dataclass(frozen=True, kw_only=True)
class Uncleared(Evidence):
    """Whether gradients are cleared between optimizer steps.

    Attributes:
        optimizer: number of the optimizer.
        kind: its class.
        steps: intervals between two of its steps in which no moment was without old gradients.
        of: intervals looked at.
        parameters: parameters looked at, by name.
    """

    optimizer: int
    kind: str
    steps: int
    of: int
    parameters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Discarded(Evidence):
    """Whether what backward computed reaches the optimizer's update.

    Attributes:
        optimizer: number of the optimizer.
        kind: its class.
        absent: successive attempts at which every gradient was gone although backward had filled some.
        early: in the last of them no backward had run in that batch yet; of ``wasted``: the step ran before it.
        elsewhere: before the last of them backward had filled nothing but gradients of others.
        zeroed: successive samples at which every gradient was zero although it was not after backward.
        cut: successive samples at which gradients were there before the step, and in the step they were zero and
            moved nothing, or next to nothing was left of them.
        kept: share of the norm that was left in the step, in the last sample; NaN where it was not measured.
        clipped: does Lightning clip gradients in between?
        wasted: successive steps before which the gradients of a whole backward were cleared, used by no step.
        where: line of the last such backward.
        parameters: parameters looked at, by name.
    """

    optimizer: int
    kind: str
    absent: int = 0
    early: bool = False
    elsewhere: bool = False
    zeroed: int = 0
    cut: int = 0
    kept: float = float("nan")
    clipped: bool = False
    wasted: int = 0
    where: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClipCalls(Evidence):
    """Calls of ``clip_grad_norm_`` in ``training_step`` at one line, over the steps that were looked at.

    Attributes:
        where: the user's line; empty where nothing is clipped there.
        times: calls.
        early: those that found no gradient but such as the last optimizer step had used up.
        none: those that found no gradient at all.
    """

    where: str
    times: int
    early: int
    none: int = 0

    @property
    def scope(self) -> str:
        return self.where
