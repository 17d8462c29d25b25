"""Penalties on the slope of a critic."""

from ..alerts import Severity
from ..evidence.targets import Penalty
from .check import Findings, check


@check("WD118", "piecewise-penalty", Severity.WARNING, Penalty)
def piecewise_penalty(seen: Penalty) -> Findings:
    """A gradient penalty measures the slope of a critic in pieces of a sample, not in samples.

    **What it sees.** The first step: ``torch.autograd.grad`` with ``create_graph=True`` of one number for each sample
    (a critic's) with respect to images or sequences. It alerts where 1 is subtracted from lengths that leave several
    to a sample, as those of ``gradients.norm(2, dim=1)`` do for (N, C, H, W), and where the samples in question are
    mixed of two by weights that differ within a sample.

    **Why it matters.** A slope of 1 is asked for of each pixel: the whole image may then have one of 28 and more, and
    the critic is bound by nothing that the theory asks for. Weights of their own for each pixel mix noise, not points
    between data and samples.

    **How to fix.** ::

        gradients.norm(2, dim=1)                         # before
        gradients.flatten(1).norm(2, dim=1)              # after
        alpha = torch.rand_like(real)                    # before
        alpha = torch.rand(len(real), 1, 1, 1)           # after

    **When to ignore.** Where the slope is meant to be bounded place by place.

    **Limits.** Critics with several numbers for a sample are not judged, nor is what has only features (N, D). Not
    where the step is compiled.

    **Sources.** Gulrajani et al. 2017, Improved Training of Wasserstein GANs, algorithm 1.
    """
    if seen.pieces:
        yield piecewise_penalty.alert(
            seen,
            "the gradient penalty asks each place of a sample for a slope of 1, not the sample",
            hint="flatten first: gradients.flatten(1).norm(2, dim=1)",
            where=seen.pieces,
        )
    elif seen.mixed:
        yield piecewise_penalty.alert(
            seen,
            "the gradient penalty mixes data and samples by another weight for each value of a sample",
            hint="draw one weight for each sample: torch.rand(len(real), 1, 1, 1)",
            where=seen.mixed,
        )
