"""Scores of samples against themselves, as contrastive losses compare them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from . import bounded
from .bounded import Numbers

FEWEST = 4
"""Samples from which a symmetric matrix of scores is no accident."""
ROUNDING = 1e-4
"""Relative; two products of the same numbers in another order differ by less in float32."""


def measure(scores: Tensor, target: Tensor) -> Numbers:
    """Is a matrix of scores (N, N) that of a batch with itself, and what do the labels (N,) make of its diagonal?

    Of several such side by side, (N, k N), the first one is looked at.

    ``mirrored``: is it symmetric, each pair at its own size, so that masked ones say nothing of the rest, and not all
    alike? ``own_top``: is each sample's score with itself the same, and the highest of its row? ``own_label``,
    ``other_label``: do all labels, or none, name the sample itself?
    """
    wide = scores.ndim == 2 and FEWEST <= len(scores) <= scores.shape[1] and scores.shape[1] % len(scores) == 0
    if not wide or scores.numel() > bounded.LIMIT or target.shape != scores.shape[:1] or target.is_floating_point():
        return {}
    if scores.dtype in (torch.float16, torch.bfloat16):
        return {}
    scores = scores[:, : len(scores)]
    own, other = scores.diagonal(), scores.T
    itself = target == torch.arange(len(target), device=target.device)
    largest = own.abs().amax()
    alike = (scores - other).abs() <= ROUNDING * scores.abs().maximum(other.abs()).maximum(largest)
    rival = scores.masked_fill(torch.eye(len(own), dtype=torch.bool, device=own.device), -torch.inf).amax(1)
    limit = ROUNDING * largest.maximum(rival.abs().amax())
    return {
        "mirrored": (alike | (scores == other)).all() & (rival.amax() > rival.amin()),
        "own_top": (rival <= own.amin() + limit).all() & (own.amax() - own.amin() <= limit),
        "own_label": itself.all(),
        "other_label": ~itself.any(),
    }


def role(values: Mapping[str, float]) -> str:
    """What each sample's score with itself is: its ``label``, an open ``rival``, or nothing to speak of."""
    if not values.get("mirrored"):
        return ""
    return "label" if values["own_label"] else "rival" if values["own_top"] and values["other_label"] else ""
