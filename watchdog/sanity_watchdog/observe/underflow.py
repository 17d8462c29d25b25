"""How much of a float16 gradient was rounded to zero, from what is left of it. Pure arithmetic."""

import math
from collections.abc import Mapping, Sequence

from .tensors import Statistics

NEAR_FLOOR = 2.0**-18
"""Largest scaled |g| of a tensor six octaves above the smallest subnormal: its zeros were lost."""
SMALL_RUN = 2.0**-6
"""Where no tensor of the run reaches this, tensors without any gradient are put down to underflow."""
FEWEST_UNITS = 3
"""Elements of exactly one unit (2^-24) below which nothing can be extrapolated."""
CERTAIN = -18
"""Octave below which bfloat16 gradients would not be multiples of 2^-24."""


def passed_through_half(rows: Sequence[Statistics]) -> bool:
    """Did these float32 gradients come out of float16 kernels? Then float16 holds every element, bfloat16 does not.

    Values of a run that underflows have too few bits to tell by; they are multiples of 2^-24 and below 2^-18, which
    neither float32 nor bfloat16 gradients are.
    """
    exact = [row for row in rows if row.live and row.half == row.live]
    return any(row.finer or row.below(CERTAIN) >= FEWEST_UNITS for row in exact)


def lost_share(row: Statistics, half: bool, run_largest: float, table: bool) -> float:
    """Estimated share of a tensor's elements that float16 rounded to zero; NaN where it cannot be told.

    Behind float16 kernels gradients are multiples of u = 2^-24. The counts of 1 u and of 2 u and 3 u give the decay of
    the density near zero (exponential in |g|); extrapolated over (0, u/2) they give what was rounded to 0.

    Args:
        row: the gradient, still scaled.
        half: is the tensor itself stored in float16?
        run_largest: largest magnitude of all gradients of this backward.
        table: an embedding, whose unused rows are zero by nature.
    """
    if not row.finite:
        return math.nan
    if row.largest == 0:
        return float(run_largest < SMALL_RUN and not table)
    if not half and row.half < row.live:
        return math.nan
    if row.largest <= NEAR_FLOOR and not table:
        return row.zero_share
    one, two = row.octave(-24), row.octave(-23)
    if one < FEWEST_UNITS:
        return 0.0
    decay = min(max((math.sqrt(1 + 4 * two / one) - 1) / 2, 0.02), 0.98)
    root = math.sqrt(decay)
    return min(row.zero_share, one * (1 - root) / (root * (1 - decay)) / row.seen)


def lost_shares(
    rows: Sequence[Statistics], half: frozenset[str] | set[str], tables: frozenset[str]
) -> tuple[float, Mapping[str, float]]:
    """Lost share of all elements that can be judged, and of each tensor by name (NaN where it cannot)."""
    largest = max((row.largest for row in rows if row.finite), default=0.0)
    shares = {row.name: lost_share(row, row.name in half, largest, row.name in tables) for row in rows}
    judged = [(row.numel, shares[row.name]) for row in rows if not math.isnan(shares[row.name])]
    total = sum(numel for numel, _ in judged)
    return (sum(numel * share for numel, share in judged) / total if total else math.nan), shares
