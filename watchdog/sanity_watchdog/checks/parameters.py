"""What parameters hold: values that were lost, that never come, that are not numbers, that are all alike."""

import math
from collections.abc import Iterable

from ..alerts import Severity
from ..evidence.parameters import Parameters, Trace
from .check import Findings, check
from .deadlock import deadlocked

SMALL = 8
"""Elements; a vector below this may reach zero by itself (a gate, a temperature, a clamped scale)."""
NO_ZEROS = 0.02
"""Share of exact zeros that dense weights may have; a sample of 512 without zeros excludes it."""
ZEROED_SHARE = 0.08
"""Rise of that share between two samples: four standard errors above ``NO_ZEROS`` for a sample of 512."""
PRUNED_GAP = 0.2
"""Smallest non-zero magnitude over the root mean square, from which on the small values were cut away on purpose: of
256 normal values the smallest lies near 0.005, and pruning of 16 % by magnitude leaves none below 0.2."""
FALLEN = 0.1
"""Norm over the norm one sample earlier; healthy runs of 40 to 260 steps stayed above 0.7."""
FALL_ATTEMPTS = 60
"""Attempts between two such samples; over longer times weight decay may shrink what is not used."""
SATURATED = 0.85
"""Root mean square over largest magnitude from which on values were clipped, as a Wasserstein critic's are: to lose
nine tenths of a norm by clipping nearly all values have to end at the bound. A uniform distribution has 0.58."""
SAME = 1e-3
"""Relative difference of largest values that are one bound, rounding included."""
SPREAD = 0.5
"""Smallest over largest magnitude below which values were not all set alike, as Adam's first step from zero does."""
STUCK_SAMPLES = 5
"""Samples in a row. A zero-initialised factor (LoRA, ReZero, adaLN-zero) is left after at most three real steps."""
IDENTICAL_SAMPLES = 2
"""Samples, at attempt 5 and later, at which all units of a matrix are still equal."""
LOSSES = ("WD121", "WD142", "WD205", "WD211", "WD202")


@check("WD301", "zeroed-parameter", Severity.ERROR, Parameters, implied_by=("WD318",))
def zeroed_parameter(seen: Parameters, *, share: float = ZEROED_SHARE, fall: float = FALLEN) -> Findings:
    """A parameter held values and lost them.

    **What it sees.** Largest magnitude, norm and share of exact zeros of every parameter at every sample. It alerts
    when a parameter becomes zero as a whole, when at least 8 % of a matrix become zero between two samples (rows,
    channels, halves), and when a matrix loses nine tenths of its norm between two samples.

    **Why it matters.** What a layer had learned is gone. The loss often recovers enough to hide it: the other layers
    route around the hole.

    **How to fix.** Look for code that writes into the tensor: a mask, ``zero_()``, an in-place edit of ``state_dict()``
    values, a partially loaded checkpoint, or a weight decay that outweighs the gradient::

        self.net[0].weight.data *= mask         # before: the mask was all zeros
        prune.custom_from_mask(self.net[0], "weight", mask)   # after: visible, and never out of step

    **When to ignore.** Where you zero structures on purpose without a mask that the module can show:
    ``ignore=["WD301:encoder.*"]``.

    **Limits.** Shares come from a sample of at most 512 elements: a single row of many escapes. A hole that fills again
    between two samples escapes. Pruning by magnitude (no small values left), masks in buffers, vectors that
    ``torch.nn.utils.prune`` masks and clipped critics are taken as meant.

    **Sources.** DeepLocalize and the SageMaker Debugger's all-zero rule know the whole tensor only; the limits of the
    rest come from 40 healthy runs of this project's corpus.
    """
    gone = [t for t in seen.traces if _is_gone(t)]
    if gone:
        worst = max(gone, key=lambda t: (t.matrix, t.numel))
        severity = Severity.ERROR if worst.matrix else Severity.WARNING if worst.numel >= SMALL else Severity.INFO
        peak = max(worst.start.largest, worst.fall[0].largest)
        yield zeroed_parameter.alert(
            seen,
            f"all values ({worst.numel:,}) are exactly zero; the largest was {peak:.3g}"
            if len(gone) == 1
            else f"{len(gone)} parameters are exactly zero; the largest value of the first was {peak:.3g}",
            severity=severity,
            hint="look for a mask, an in-place edit or weight decay that reaches this tensor",
            subjects=_by_size(gone),
            evidence={"zeroed": len(gone), "numel": worst.numel, "largest_before": peak},
        )
        return
    holes = [t for t in seen.traces if t not in gone and _has_hole(t, share)]
    if holes:
        worst = max(holes, key=_risen)
        before, after = worst.rise
        yield zeroed_parameter.alert(
            seen,
            f"{after.zeros:.0%} of {worst.numel:,} values became exactly zero at once; limit {share:.0%}",
            severity=Severity.WARNING,
            hint="look for an in-place edit of rows or channels; keep a mask in a buffer where it is meant",
            subjects=[t.name for t in sorted(holes, key=_risen, reverse=True)],
            evidence={"zeros_before": before.zeros, "zeros": after.zeros, "attempt": after.attempt},
        )
        return
    fallen = _fallen(seen.traces, fall)
    if fallen:
        worst = min(fallen, key=_kept)
        before, after = worst.fall
        yield zeroed_parameter.alert(
            seen,
            f"norm fell from {before.norm:.3g} to {after.norm:.3g} within {after.attempt - before.attempt} steps",
            severity=Severity.WARNING,
            hint="look for an in-place edit, a mask or weight decay that outweighs the gradient",
            subjects=[t.name for t in sorted(fallen, key=_kept)],
            evidence={"kept": _kept(worst), "limit": fall, "attempt": after.attempt},
        )


def _is_gone(trace: Trace) -> bool:
    if trace.pruned and not trace.matrix:  # small next to the weights, biases are the first to go
        return False
    if trace.now.attempt == 0 and not trace.matrix:  # hooks and the first step may initialise it
        return False
    return trace.now.largest == 0 and max(trace.start.largest, trace.fall[0].largest) > 0


def _by_size(traces: list[Trace]) -> list[str]:
    return [t.name for t in sorted(traces, key=lambda t: (t.matrix, t.numel), reverse=True)]


def _risen(trace: Trace) -> float:
    return trace.rise[1].zeros - trace.rise[0].zeros


def _has_hole(trace: Trace, share: float) -> bool:
    before, after = trace.rise
    if not trace.matrix or trace.masked or trace.pruned or max(before.zeros, trace.start.zeros) > NO_ZEROS:
        return False  # what began at zero keeps the zeros that no gradient reaches, and samples meet them unevenly
    error = math.sqrt(after.zeros * (1 - after.zeros) / max(trace.seen, 1))
    if after.zeros - before.zeros < max(share, 4 * error) or trace.now.zeros < share / 2:
        return False
    rms = after.norm / math.sqrt(max(trace.numel * (1 - after.zeros), 1))
    return not after.smallest >= PRUNED_GAP * rms


def _kept(trace: Trace) -> float:
    before, after = trace.fall
    return after.norm / before.norm if before.norm > 0 else 1.0


def _fallen(traces: tuple[Trace, ...], limit: float) -> list[Trace]:
    """Matrices that lost their norm, without those of an optimizer whose matrices were all clipped to a small range."""
    fallen: dict[int, list[Trace]] = {}
    for trace in traces:
        before, after = trace.fall
        if trace.matrix and after.norm > 0 and _kept(trace) < limit and after.attempt - before.attempt <= FALL_ATTEMPTS:
            fallen.setdefault(trace.optimizer, []).append(trace)
    return [
        trace
        for optimizer, several in fallen.items()
        if not all(map(_is_clipped, several)) or not _have_one_bound(t for t in traces if t.optimizer == optimizer)
        for trace in several
    ]


def _have_one_bound(traces: Iterable[Trace]) -> bool:
    """Do the largest values of all matrices equal each other after their fall?"""
    largest = [t.fall[1].largest for t in traces if t.matrix]
    return math.isclose(min(largest), max(largest), rel_tol=SAME)


def _is_clipped(trace: Trace) -> bool:
    after = trace.fall[1]
    saturated = after.norm >= SATURATED * after.largest * math.sqrt(trace.numel)
    return saturated and after.smallest < SPREAD * after.largest


@check("WD302", "stuck-at-zero", Severity.ERROR, Parameters, implied_by=("WD301", "WD501", "WD217", "WD201", "WD122"))
def stuck_at_zero(seen: Parameters, *, samples: int = STUCK_SAMPLES) -> Findings:
    """Matrices are zero and so are their gradients: they can never move.

    **What it sees.** Trainable matrices whose elements are all zero, and whose gradient is there and zero in every
    element, at five samples in a row, together with what holds them there: another such matrix or gate that fits before
    or behind, a frozen one of zeros, or a layer behind it whose bias learns and whose weight never moves.

    **Why it matters.** A product of two zeros has no gradient in either factor: the optimizer will never leave this
    point, however long the run. Everything behind such a layer sees a constant.

    **How to fix.** Initialise one of the factors with small random values::

        nn.init.zeros_(lora.a); nn.init.zeros_(lora.b)      # before: stuck for good
        nn.init.kaiming_uniform_(lora.a); nn.init.zeros_(lora.b)   # after: starts at zero, and moves

    **When to ignore.** Where the branch is to stay switched off for a while.

    **Limits.** Biases, gates and a single zero matrix are not judged alone: a zero-initialised head has no gradient
    while its targets are all zero or masked, nor has LoRA's B before its task comes.

    **Sources.** Zero initialisation in DeepLocalize, NeuraLint and TheDeepChecker; the LoRA paper zeroes one factor
    only.
    """
    stuck = deadlocked(seen.traces, samples)
    if stuck:
        vectors = [t for t in seen.traces if not t.matrix and t.trainable and t.idle >= samples]
        yield stuck_at_zero.alert(
            seen,
            f"{len(stuck)} {'matrix is' if len(stuck) == 1 else 'matrices are'} zero, and so is the gradient, "
            f"in {min(t.idle for t in stuck)} samples in a row",
            hint="initialise with small random values; of two factors of a product at most one may start at zero",
            subjects=[t.name for t in (*stuck, *vectors)],
            evidence={"stuck": len(stuck), "matrices": sum(t.matrix for t in seen.traces), "limit": samples},
        )


@check("WD303", "non-finite-parameter", Severity.ERROR, Parameters, implied_by=LOSSES)
def non_finite_parameter(seen: Parameters) -> Findings:
    """A parameter holds NaN or an infinity.

    **What it sees.** The largest magnitude of every parameter at every sample; NaN and infinities show in it.
    Infinities in a frozen parameter are taken as a mask and are not meant.

    **Why it matters.** Every output behind it is NaN from now on, and every checkpoint written is worthless.

    **How to fix.** Before the first step: look at the initialisation (``torch.empty``) or the loaded checkpoint. Later:
    the step named is the first sample that saw it; look at the loss, the learning rate and eps just before, and run
    ``Trainer(detect_anomaly=True)`` from the last good checkpoint::

        w / w.norm(dim=1, keepdim=True)                    # before: 0/0 for a row of zeros
        w / w.norm(dim=1, keepdim=True).clamp_min(1e-6)    # after

    **When to ignore.** Never in a trainable parameter.

    **Limits.** Seen at samples: up to ``every_n_steps`` steps late.

    **Sources.** IEEE 754: NaN is absorbing under addition and multiplication.
    """
    bad = [
        t
        for t in seen.traces
        if _is_bad(t.now.largest, t) and (seen.stage == "start" or not _is_bad(t.start.largest, t))
    ]
    if bad and seen.stage == "start":
        yield non_finite_parameter.alert(
            seen,
            f"NaN or infinities in {len(bad)} of {len(seen.traces)} parameters before the first step",
            hint="look at the initialisation (torch.empty) or the loaded checkpoint",
            subjects=[t.name for t in bad],
            evidence={"parameters": len(bad)},
        )
    elif bad:
        yield non_finite_parameter.alert(
            seen,
            f"NaN or infinities in {len(bad)} of {len(seen.traces)} parameters after {seen.attempt:,} steps",
            hint="look at the loss, learning rate and eps just before; detect_anomaly=True names the operation",
            subjects=[t.name for t in bad],
            evidence={"parameters": len(bad)},
        )


def _is_bad(largest: float, trace: Trace) -> bool:
    """NaN, or infinite in a parameter that trains: a frozen one may be a mask."""
    return math.isnan(largest) or (trace.trainable and math.isinf(largest))


@check("WD304", "identical-units", Severity.WARNING, Parameters, implied_by=("WD302", "WD501", "WD316"))
def identical_units(seen: Parameters, *, samples: int = IDENTICAL_SAMPLES) -> Findings:
    """All units of a layer started equal and stay equal.

    **What it sees.** Matrices whose rows all hold the same values at the start and, though the matrix has moved, still
    do at attempt 5 and later.

    **Why it matters.** Equal units get equal gradients: a layer of 512 units computes what one unit could.

    **How to fix.** Initialise at random::

        nn.init.constant_(layer.weight, 0.01)       # before
        nn.init.kaiming_uniform_(layer.weight)      # after

    **When to ignore.** Where rows are tied on purpose.

    **Limits.** The first eight rows are compared. A constant layer directly under the loss gets different gradients per
    row and is rightly silent.

    **Sources.** Goodfellow, Bengio, Courville, *Deep Learning* 8.4: initialisation has to break symmetry.
    """
    same = [t for t in seen.traces if t.trainable and t.identical >= samples]
    if same:
        yield identical_units.alert(
            seen,
            f"all units of {len(same)} {'matrix' if len(same) == 1 else 'matrices'} are still equal "
            f"after {seen.attempt:,} steps",
            hint="initialise with random values, so that units can become different",
            subjects=[t.name for t in same],
            evidence={"matrices": len(same), "units": same[0].shape[0]},
        )
