"""The loss scaler, and constants in half precision."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class ScalerHistory(Evidence):
    """What the loss scaler did so far.

    Attributes:
        attempts: optimizer steps attempted under this scaler.
        skipped: of these, skipped.
        window: attempts that ``window_skipped`` counts: the latest ones, without the first eight of the run.
        window_skipped: of these, skipped.
        start_scale: first scale that was read; 0 before one was.
        scale: latest scale that was read.
        constant: has the scale been the same whenever it was read?
        growth_interval: steps without overflow after which the scale doubles.
        schedules_ahead: steps that a schedule is ahead of its optimizer, since the eighth attempt.
    """

    attempts: int
    skipped: int
    window: int
    window_skipped: int
    start_scale: float
    scale: float
    constant: bool
    growth_interval: int
    schedules_ahead: int = 0


@dataclass(frozen=True, kw_only=True)
class ScalerSetup(Evidence):
    """Formats and scaler at the start.

    Attributes:
        autocast_half: does the step run under float16 autocast?
        half_weights: trainable parameters stored in float16.
        trainable: trainable parameters.
        scaler: ``live``, ``disabled`` or ``none``.
    """

    autocast_half: bool
    half_weights: tuple[str, ...]
    trainable: int
    scaler: str


@dataclass(frozen=True, kw_only=True)
class TinyConstant(Evidence):
    """A constant of an optimizer beside the parameters that it is added to.

    Attributes:
        optimizer: its class.
        name: name of the constant, such as ``eps``.
        value: its value.
        dtype: format of the parameters and so of the sum.
        smallest: smallest positive number of that format.
        parameters: parameters in that format, by name.
    """

    optimizer: str
    name: str
    value: float
    dtype: str
    smallest: float
    parameters: tuple[str, ...]


class Clipped(Evidence):
    """What shows that gradients are clipped before they are unscaled."""


@dataclass(frozen=True, kw_only=True)
class ScaledClip(Clipped):
    """One clip by norm that came before the loss scaler has unscaled the gradients for their step.

    Attributes:
        where: the user's line.
        clip: the value it clips to. norm: the norm that it found.
        scale: the scaler's.
    """

    where: str
    clip: float
    norm: float
    scale: float


@dataclass(frozen=True, kw_only=True)
class ClippedNorms(Clipped):
    """Gradient norms as an optimizer is about to apply them, beside the loss scales.

    Attributes:
        norms: unscaled L2 norms of all gradients at the last samples before the step.
        scales: the loss scales at the same moments.
        manual: could a deliberate clip have come before (manual optimisation)?
    """

    norms: tuple[float, ...]
    scales: tuple[float, ...]
    manual: bool
