"""How far parameters move: not at all, too little, too much, only towards zero."""

import math

from ..alerts import Severity
from ..evidence.movement import Movement, Pace, Stride
from ..evidence.parameters import Parameters, Trace
from .check import Findings, Skip, check

TINY = 1e-7
"""Update-to-weight ratio, pooled over matrices. AdamW at 1e-6 (fine-tuning) has 7e-6, at 1e-9 no more than 7e-9."""
WHOLE, FEWEST_STEPS = 1e-3, 50
"""Update-to-weight ratio times the steps of the planned run, where these are no mere trial: all that it can change.
AdamW at 1e-6 changes as much in 140 steps."""
SLOW = 2e-6
"""Ratio beyond which that is not asked: a fine-tuning that is cut short."""
SAMPLES = 5
"""Samples since the rate last rose to more than twice its largest value, so that a warm-up does not count."""
FALLEN = 1e-3
"""Rate over its largest: from there on it is the schedule that has ended the run, not a loss that is learnt."""
EARLY_END = 0.5
"""Share of the planned run before which that is too early."""
LARGE_SHARE = 0.25
"""Share of the elements that stand still from which on it is more than a corner of the model."""
HUGE = 0.3
"""Pooled ratio. Healthy runs of seven optimizers stay below 0.1; RMSprop begins with ten times its rate, up to 1.8."""
GROWN = 5.0
"""Weights over their first values, at attempt 8 or before. Four networks: RMSprop at its default rate at most 2.6,
Adam at 0.03 at most 2.1, at 0.1, where it begins to harm, 3.3 to 6.4, at 0.3 at least 9.9; diverging SGD 10 or more."""
MATRICES = 2
"""A single matrix may start as small as it likes: a linear probe."""
DECAYED = 0.02
"""Norm over the norm at the start. Long runs with strong decay settle near 0.1 to 0.5."""
DECAYED_MATRICES = 0.9
"""Share of the matrices that has to have shrunk so far."""
CAUSES = (
    "WD501",
    "WD506",
    "WD311",
    "WD312",
    "WD315",
    "WD109",
    "WD203",
    "WD204",
    "WD206",
    "WD201",
    "WD217",
    "WD318",
    "WD302",
    "WD122",
    "WD123",
    "WD133",
    "WD212",
    "WD213",
    "WD214",
    "WD215",
    "WD320",
)
EXPLAINS = 1.0
"""Rate × decay × steps below which weight decay cannot have taken 98 % of a weight: it has left a third at least."""
BY_HAND = (
    "weight decay takes less: look for weights clamped, scaled or reset by hand, or a penalty (L1, L2) in the loss"
)


@check("WD316", "barely-moving", Severity.WARNING, Movement, implied_by=CAUSES)
def barely_moving(seen: Movement, *, ratio: float = TINY, samples: int = SAMPLES) -> Findings:
    """The optimizer's steps are far too small to change anything, or weights do not move at all.

    **What it sees.** The same sampled elements just before and just after a step. The root mean square of the update
    over that of the weights, pooled over the matrices: its largest value since the rate last doubled, where a rate that
    still rises is taken to go on rising like that to the planned end (below 1e-7, or below 2e-6 where all steps of the
    planned run together cannot change a thousandth of the weights), or its last five values, where a schedule has
    brought the rate below a thousandth of its largest in the first half of the run. And parameters with gradients and a
    learning rate of which no sampled element has changed in five samples.

    **Why it matters.** At a ratio of 1e-7 a weight needs ten million steps to change by its own size. In float32 an
    update below 6e-8 of the weight is rounded away altogether.

    **How to fix.** Look for a lost factor in the learning rate::

        torch.optim.AdamW(self.parameters(), lr=1e-9)    # before: 1e-3 with a typing error
        torch.optim.AdamW(self.parameters(), lr=1e-3)    # after

    Look also at the length of a warm-up, and at what a schedule counts: steps, batches or epochs. With plain SGD look
    at the scale of the loss. Weights that stay exactly equal may be restored by a hook, or the optimizer's ``step``
    does nothing.

    **When to ignore.** Where almost no movement is meant.

    **Limits.** This is a last resort: any cause that another check has found explains it away. In half precision single
    parameters are not judged, WD204 does that. A warm-up of a run without a planned end is not judged while it lasts.

    **Sources.** Karpathy's rule of thumb: about 1e-3 is healthy. SageMaker Debugger alerts below 1e-8.
    """
    judged = [p for p in seen.paces if p.counted >= samples and not math.isnan(p.top.ratio)]
    if not judged:
        yield Skip("fewer than five sampled steps of matrices")
        return
    slow = [p for p in judged if p.top.ratio * _still_to_rise(p, seen) < max(ratio, _short(p, seen))]
    if slow:
        worst = min(slow, key=lambda p: p.top.ratio)
        limit = max(ratio, _short(worst, seen))
        yield barely_moving.alert(
            seen,
            f"one step changes the matrices by at most {worst.top.ratio:.1e} of their size; limit {limit:.1g}"
            + (f" in {seen.planned:,.0f} steps" if limit > ratio else ""),
            hint="raise the learning rate, or the scale of the loss or the clipping limit where plain SGD is used",
            evidence={"ratio": worst.top.ratio, "limit": limit, "lr": worst.top.lr, "optimizer": worst.kind},
        )
        return
    ended = [p for p in judged if _ended_early(p, seen, ratio, samples)]
    if ended:
        worst = min(ended, key=lambda p: p.last[0].attempt)
        since, end = worst.last[0], worst.last[-1]
        yield barely_moving.alert(
            seen,
            f"steps from {since.attempt:,} on change the matrices by {end.ratio:.1e} of their size; limit {ratio:.0e}",
            hint="let the schedule decay over the whole run, or end the run where the rate is used up",
            evidence={
                "ratio": end.ratio,
                "limit": ratio,
                "lr": end.lr,
                "largest_lr": worst.fastest,
                "planned_steps": seen.planned,
            },
        )
        return
    still = [] if seen.half else [s for s in seen.still if s.matrix and s.samples >= samples]
    if still:
        share = sum(s.numel for s in still) / max(seen.elements, 1)
        yield barely_moving.alert(
            seen,
            f"{len(still)} {'matrix' if len(still) == 1 else 'matrices'} with gradients did not move in "
            f"{min(s.samples for s in still)} samples",
            severity=Severity.WARNING if share >= LARGE_SHARE else Severity.INFO,
            hint="look for code that restores these weights, or an optimizer whose step does nothing to them",
            subjects=[s.name for s in still],
            evidence={"still": len(still), "share": share, "limit": LARGE_SHARE},
        )


def _short(pace: Pace, seen: Movement) -> float:
    """The ratio below which a run of so many steps, at a rate that has risen as far as it does, changes nothing."""
    if _rises(pace) or not FEWEST_STEPS <= seen.foreseen < math.inf:
        return 0.0
    return min(SLOW, WHOLE / seen.foreseen)


def _rises(pace: Pace) -> bool:
    return len(pace.last) > 1 and pace.last[-1].lr > max(s.lr for s in pace.last[:-1])


def _still_to_rise(pace: Pace, seen: Movement) -> float:
    """By how much the rate may be larger at the planned end, rising in a straight line."""
    return max(1.0, seen.planned / pace.last[-1].attempt) if _rises(pace) else 1.0


def _ended_early(pace: Pace, seen: Movement, ratio: float, samples: int) -> bool:
    last = pace.last
    small = len(last) >= samples and all(s.ratio < ratio and s.lr <= FALLEN * pace.fastest for s in last)
    return small and last[0].attempt <= EARLY_END * seen.planned and math.isfinite(seen.planned)


@check("WD317", "overshooting", Severity.WARNING, Movement, implied_by=("WD318", "WD216", "WD213", "WD123"))
def overshooting(seen: Movement, *, ratio: float = HUGE, growth: float = GROWN) -> Findings:
    """Single steps change the weights by the order of their own size.

    **What it sees.** The root mean square of the update over that of the weights, pooled over an optimizer's matrices,
    in the first six samples (attempts 0 to 8): it has to reach 0.3 in one of them, and the weights have to grow to five
    times their first size.

    **Why it matters.** What the initialisation or a pretraining had put into the weights is overwritten in a few steps.
    Later the weights have grown, the ratio looks healthy again, and the damage stays.

    **How to fix.** Lower the learning rate by the factor between the ratio seen and about 1e-3, or warm it up::

        torch.optim.AdamW(self.parameters(), lr=0.5)     # before
        torch.optim.AdamW(self.parameters(), lr=5e-4)    # after

    **When to ignore.** Where the weights start very small on purpose.

    **Limits.** Matrices that start at zero, embeddings, single-matrix models and optimizers that search for their own
    step length (L-BFGS) are left out.

    **Sources.** Karpathy's rule of thumb: about 1e-3 is healthy. SageMaker Debugger alerts above 10.
    """
    if not any(len(p.early) > 1 for p in seen.paces):
        yield Skip("fewer than two sampled steps")
        return
    for pace in seen.paces:
        early = [s for s in pace.early if s.matrices >= MATRICES and math.isfinite(s.ratio)]
        if pace.searching or not early:
            continue
        fastest, grown = max(early, key=_ratio), max(early, key=_growth)
        if fastest.ratio >= ratio and grown.growth >= growth:
            yield overshooting.alert(
                seen,
                f"the matrices grew to {grown.growth:.3g} times their size in {grown.attempt} "
                f"{'step' if grown.attempt == 1 else 'steps'}; limit {growth:g}",
                hint="lower the learning rate, or warm it up",
                evidence={
                    "growth": grown.growth,
                    "largest_ratio": fastest.ratio,
                    "ratio_limit": ratio,
                    "lr": fastest.lr,
                    "optimizer": pace.kind,
                },
            )


def _ratio(stride: Stride) -> float:
    return stride.ratio


def _growth(stride: Stride) -> float:
    return stride.growth


@check("WD319", "decaying-away", Severity.WARNING, Parameters, implied_by=("WD318", "WD301", "WD217"))
def decaying_away(seen: Parameters, *, share: float = DECAYED) -> Findings:
    """Nearly all matrices have shrunk to a fraction of their initial norm.

    **What it sees.** The norm of each trainable matrix against its norm at the start: nine of ten below 2 %.

    **Why it matters.** Weight decay, or another penalty, wins over the gradient: the network becomes a constant. The
    loss seems to converge, at the value of a model that knows nothing.

    **How to fix.** Lower ``weight_decay``, or the product of rate and decay; look whether gradients arrive at all::

        SGD(self.parameters(), lr=0.1, weight_decay=0.5)     # before: each step takes 5 % of every weight
        SGD(self.parameters(), lr=0.1, weight_decay=5e-4)    # after

    **When to ignore.** Where weights start large on purpose.

    **Limits.** Embeddings, vectors, masked and single matrices are left out.

    **Sources.** Loshchilov and Hutter, *Decoupled Weight Decay Regularization*: without a gradient weights shrink by
    1 - lr × decay a step.
    """
    matrices = [t for t in seen.traces if t.matrix and t.trainable and t.optimizer >= 0 and not (t.table or t.masked)]
    shrunk = [t for t in matrices if t.start.norm > 0 and 0 < t.now.norm <= share * t.start.norm]
    if len(matrices) >= MATRICES and len(shrunk) >= DECAYED_MATRICES * len(matrices):
        worst = min(shrunk, key=_kept)
        yield decaying_away.alert(
            seen,
            f"{len(shrunk)} of {len(matrices)} matrices fell below {share:.0%} of their norm by step {seen.attempt:,}",
            hint=BY_HAND
            if seen.decay * seen.attempt < EXPLAINS
            else "lower weight_decay or its product with the learning rate, and look whether gradients arrive",
            subjects=[t.name for t in sorted(shrunk, key=_kept)],
            evidence={
                "shrunk": len(shrunk),
                "smallest_share": _kept(worst),
                "limit": share,
                "decay_per_step": seen.decay,
            },
        )


def _kept(trace: Trace) -> float:
    return trace.now.norm / trace.start.norm
