"""Gradients and activations in float16."""

import math
from dataclasses import dataclass

from .base import Evidence

RUN_SHARE = 0.10
"""Lost share of all gradient elements. With a live loss scale of 2^8 and more the truth was at most 0.015 and the
estimate at most 0.010 in 286 measured runs: ten times the healthy maximum."""
LAYER_SHARE = 0.50
"""Lost share of one tensor: 219 of 230 that lost over half were found, none of 1,928 that lost under 1 % accused."""
LAYER_NUMEL = 64
"""Elements below which one tensor's share is too uncertain to alert (standard error 6 % and more)."""
CONFIRM = 3
"""Measured micro-batches before a verdict."""


def median(values: tuple[float, ...]) -> float:
    """Middle value; the upper of two."""
    return sorted(values)[len(values) // 2]


@dataclass(frozen=True, kw_only=True)
class LostLayer:
    """One parameter's gradient in float16.

    Attributes:
        name: the parameter.
        numel: its elements.
        share: estimated share that was rounded to zero, median of the last micro-batches.
        error: standard error of ``share`` from sampling.
        zeros: share of exact zeros, lost or natural.
        largest: log2 of the largest magnitude, still scaled; -inf where all are zero.
    """

    name: str
    numel: int
    share: float
    error: float
    zeros: float
    largest: float


@dataclass(frozen=True, kw_only=True)
class HalfGradients(Evidence):
    """Gradients that passed through float16, still scaled, over the last micro-batches.

    Attributes:
        shares: estimated lost share of all elements, one for each of the last ``CONFIRM`` micro-batches.
        layers: parameters that probably lose elements, worst first; at most 64.
        measured: parameters that could be judged.
        silent: not one element of the run had a gradient.
        scale: the loss scale; 1 without a scaler.
        scaled: is there a live loss scaler?
        native_bf16: does the device compute in bfloat16 natively?
        ever: has any sample of this run had a gradient?
    """

    shares: tuple[float, ...]
    layers: tuple[LostLayer, ...]
    measured: int
    silent: bool
    scale: float
    scaled: bool
    native_bf16: bool
    ever: bool = True

    @property
    def share(self) -> float:
        """Lost share of all elements, the median of the last micro-batches."""
        return median(self.shares) if self.shares else 0.0

    @property
    def lost(self) -> tuple[LostLayer, ...]:
        """Parameters that lose at least half of their elements."""
        return tuple(x for x in self.layers if x.share >= LAYER_SHARE and x.numel >= LAYER_NUMEL)

    @property
    def alarming(self) -> bool:
        """Enough to alert?"""
        return len(self.shares) >= CONFIRM and (self.share >= RUN_SHARE or bool(self.lost))


@dataclass(frozen=True, kw_only=True)
class HalfRange(Evidence):
    """How far float16 values are from leaving its range.

    Attributes:
        native_bf16: does the device compute in bfloat16 natively?
        bad: parameters with an infinite or NaN gradient, those nearest to the loss first.
        infinite: is one of them infinite (not only NaN)?
        headroom: octaves between the largest finite gradient, still scaled, and 65504.
        scale: the loss scale; 1 without a scaler.
        scaled: is there a live loss scaler?
        module: first module whose float16 output became infinite in a step that was watched; empty where none did.
        kind: its class.
        tightest: module with the largest finite output.
        activation_headroom: octaves from there to 65504; infinite where no step was watched.
    """

    native_bf16: bool
    bad: tuple[str, ...] = ()
    infinite: bool = False
    headroom: float = math.inf
    scale: float = 1.0
    scaled: bool = False
    module: str = ""
    kind: str = ""
    tightest: str = ""
    activation_headroom: float = math.inf
