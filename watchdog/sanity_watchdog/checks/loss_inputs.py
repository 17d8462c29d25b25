"""What loss functions are given: probabilities, log-probabilities or scores."""

import math

from ..alerts import Alert, Severity
from ..evidence.alignments import AlignmentLoss
from ..evidence.losses import (
    AcrossVectors,
    BinaryLoss,
    ByHandLoss,
    DivergenceLoss,
    LossSeen,
    Origin,
    SoftmaxLoss,
    SquashedTwice,
)
from .check import Findings, Skip, check
from .doubtful import by_hand, doubtful
from .log_inputs import NORMALISED, is_complement, log_tolerance, sums_to_one, wrong_alignment, wrong_divergence

CUT = 0.2
"""Share of clamped scores at the edges: those have no gradient. A slope made to fit starts between them."""


def _is_softmax_over_classes(seen: SoftmaxLoss) -> bool:
    origin = seen.origin
    if origin is None or origin.name != "softmax" or origin.axis is None:
        return False
    if origin.shape == seen.shape:
        return origin.axis == seen.axis
    return origin.shape[origin.axis] == seen.classes


def _has_wrong_axis(seen: SoftmaxLoss) -> bool:
    """Was a softmax taken over something else than the classes?"""
    origin = seen.origin
    if origin is not None and origin.name in ("softmax", "log_softmax") and origin.axis is not None:
        if origin.shape[origin.axis] != seen.classes:
            return True
        error = seen.sum_error if origin.name == "softmax" else seen.log_error
        return origin.shape == seen.shape and origin.axis != seen.axis and not error <= NORMALISED
    if seen.function != "cross_entropy":
        return False
    columns = sums_to_one(seen.column_error, seen.low, seen.high, seen.classes, seen.rows, seen.dtype)
    return columns and seen.sum_error > NORMALISED


@check("WD102", "double-softmax", Severity.ERROR, LossSeen)
def double_softmax(seen: LossSeen) -> Findings:
    """A loss that applies softmax or sigmoid itself is given values that have already been through one.

    **What it sees.** The first argument of ``cross_entropy``, ``binary_cross_entropy_with_logits`` and
    ``multilabel_soft_margin_loss``: whether a softmax or sigmoid (also written as ``(tanh(z / 2) + 1) / 2`` or
    ``1 / (1 + exp(-z))``, or beside its complement) was seen making it, or, for softmax, whether all its rows lie in
    [0, 1] and sum to 1 within rounding, in more rows than chance could explain. And a softmax of a softmax over the
    same axis, a sigmoid of a sigmoid, or such a logarithm (``log_softmax``, ``logsigmoid``, ``softplus``), as where a
    Dice loss applies again what the network has applied, or a distillation divides probabilities by its temperature.
    Training and the first validation batch are looked at.

    **Why it matters.** Nothing crashes and the first loss is normal, but the gradients are tiny and the loss cannot
    fall below ln(e + k - 1) - 1 (1.46 for ten classes).

    **How to fix.** Give the loss the raw scores::

        return self.head(x)                      # not self.head(x).softmax(-1)
        F.cross_entropy(scores, labels)

    **When to ignore.** Never in training: log-probabilities are harmless to ``cross_entropy``, probabilities are not.

    **Limits.** For the sigmoid only its own call is proof (healthy fresh logits often lie in [0, 1]); where nothing
    can be followed (compiled code, later samples) it is not seen. Of losses written by hand only those are judged that
    apply a softmax, a sigmoid or its logarithm themselves.

    **Sources.** DeepFD, NeuraLint and UMLAUT list it among the most frequent faults of training programs. The rule
    for the rows was measured on 100,000 random batches per format.
    """
    if isinstance(seen, SoftmaxLoss) and seen.function != "nll_loss" and seen.classes > 1:
        looks = sums_to_one(seen.sum_error, seen.low, seen.high, seen.rows, seen.classes, seen.dtype)
        if looks or _is_softmax_over_classes(seen):
            floor = math.log(math.e + seen.classes - 1) - 1
            yield _twice(seen, "softmax", f"rows sum to 1: the loss cannot fall below {floor:.2f}")
        elif seen.origin is not None and seen.origin.name == "sigmoid":
            yield _twice(seen, "sigmoid", f"{seen.low:.2g} to {seen.high:.2g}")
    elif isinstance(seen, SquashedTwice) and seen.origin is not None:
        yield _twice(seen, seen.origin.name, "squashed twice")
    elif isinstance(seen, BinaryLoss) and seen.logits:
        if seen.origin is not None and seen.origin.name in ("sigmoid", "softmax"):
            yield _twice(seen, seen.origin.name, f"{seen.low:.2g} to {seen.high:.2g}")
        elif not seen.followed:
            yield Skip("operations before the loss were not followed")
    else:
        yield Skip("no loss that applies softmax or sigmoid itself")


def _twice(seen: LossSeen, name: str, why: str) -> Alert:
    made = seen.origin.where if seen.origin is not None else ""
    evidence: dict[str, str | float] = {"low": seen.low, "high": seen.high, "dtype": seen.dtype}
    hint = f"give it the scores: remove the {name} before the loss" + (f", made at {made}" if made else "")
    if isinstance(seen, SquashedTwice):
        evidence = {"shape": str(seen.shape)}
        if seen.function == name:
            hint = f"keep one {name} of the two, this one or the one at {made}"
    if isinstance(seen, SoftmaxLoss):
        evidence |= {"sum_error": seen.sum_error, "rows": seen.rows}
    return double_softmax.alert(
        seen,
        f"{seen.function} gets probabilities ({why})",
        hint=hint,
        subjects=(seen.function,),
        where=seen.where,
        evidence=evidence,
    )


@check("WD103", "wrong-loss-input", Severity.ERROR, LossSeen)
def wrong_loss_input(seen: LossSeen) -> Findings:
    """A loss is given another kind of number than it is defined for.

    **What it sees.** ``nll_loss``, ``kl_div`` and ``ctc_loss`` on rows that are no log-probabilities (their logsumexp
    is not 0), ``ctc_loss`` on (N, T, k) in place of (T, N, k), targets of ``kl_div`` in the wrong one of its two
    forms, ``cross_entropy`` with a single class, a softmax taken over another axis than the classes, scores whose
    classes the last layer has put on another axis of the same length, or that a reshape has torn from their rows,
    contrastive scores of a batch with itself in which a sample is its own positive or its own rival, or of vectors that
    were normalised over the samples, logits or log-probabilities given to a binary loss that wants the other, scores
    that a clamp makes look like probabilities, by hand as well, an overlap (Dice, IoU, Tversky) written by hand of
    scores that come straight out of a layer, and a softmax over the samples whose logarithms are picked, or weighed and
    summed up, for each sample of its own values. A note only: ``kl_div`` with the default reduction, and
    ``binary_cross_entropy`` of a softmax over several classes (a WARNING where more than one is right).

    **Why it matters.** These losses compute something all the same. ``nll_loss`` on raw scores has no lower bound: the
    scores grow and the loss falls to minus infinity while nothing is learned. With one class the loss is 0 for ever.

    **How to fix.** Give the loss what it is defined for::

        F.nll_loss(F.log_softmax(scores, dim=1), labels)     # or F.cross_entropy(scores, labels)
        F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean")
        F.ctc_loss(F.log_softmax(scores, -1).transpose(0, 1), letters, frames, sizes)    # scores (N, T, k)
        F.binary_cross_entropy_with_logits(score, label)     # one output

    **When to ignore.** Where ``nll_loss`` only picks entries from something that is meant to be no log-probability,
    as some policy gradients do; products of a ``log_softmax`` are recognised where they can be followed, and so are
    logarithms of 1 - p, where a class is to be made unlikely.

    **Limits.** Looks at a bounded sample of rows. Unnormalised measures in ``kl_div`` look like raw scores.

    **Sources.** The definitions in PyTorch's documentation of each loss; the limit leaves room for half precision.
    """
    found = ("", "")
    if isinstance(seen, SoftmaxLoss):
        found = _wrong_classes(seen)
    elif isinstance(seen, BinaryLoss):
        found = _wrong_binary(seen)
    elif isinstance(seen, DivergenceLoss):
        found = wrong_divergence(seen)
    elif isinstance(seen, AlignmentLoss):
        found = wrong_alignment(seen)
    elif isinstance(seen, ByHandLoss):
        found = by_hand(seen)
    elif not isinstance(seen, AcrossVectors):
        yield Skip("no loss that asks for logits or log-probabilities")
    message, hint = found
    if not message and (note := doubtful(seen)):
        where, name = seen.where, seen.function
        yield wrong_loss_input.alert(seen, note[0], severity=note[2], hint=note[1], subjects=(name,), where=where)
    if message:
        origin = seen.origin
        made = f" ({origin.name} at {origin.where})" if origin is not None and origin.where else ""
        yield wrong_loss_input.alert(
            seen,
            f"{seen.function} {message}",
            severity=Severity.WARNING if isinstance(seen, SoftmaxLoss) and seen.itself == "rival" else None,
            hint=hint + made,
            subjects=(seen.function,),
            where=seen.where,
            evidence={"shape": str(seen.shape), "low": seen.low, "high": seen.high, "value": seen.value},
        )


def _wrong_classes(seen: SoftmaxLoss) -> tuple[str, str]:
    if seen.classes == 1:
        return (
            f"of one class is always 0 (scores {seen.shape})",
            "use binary_cross_entropy_with_logits for one output, or two outputs",
        )
    if seen.crossed:
        return (
            f"takes axis {seen.axis} for its {seen.classes} classes; the last layer made them on another axis",
            "move them: scores.transpose(1, -1), or flatten scores and labels",
        )
    if seen.repeated:
        return (
            f"gets rows of {seen.classes} scores that are not {seen.classes} outputs of the last layer",
            "a view or reshape keeps the order in memory: move the classes first, scores.movedim(1, -1).reshape(…)",
        )
    if seen.itself == "label":
        return (
            f"pairs each of {seen.shape[0]} samples with itself: a symmetric matrix, labelled by its diagonal",
            "compare two views: z_a @ z_b.T, or label each sample with its partner and mask the diagonal",
        )
    if seen.itself == "rival":
        return (
            f"ranks {seen.shape[0]} samples against themselves: the diagonal is open and always highest",
            "mask it: scores.fill_diagonal_(float('-inf')) before the loss",
        )
    if _has_wrong_axis(seen):
        return (
            f"gets a softmax over another axis than its {seen.classes} classes (axis {seen.axis})",
            f"take it over axis {seen.axis}, or give cross_entropy the scores",
        )
    if seen.function != "nll_loss" or seen.logs:
        return "", ""
    if sums_to_one(seen.sum_error, seen.low, seen.high, seen.rows, seen.classes, seen.dtype):
        return "gets probabilities, not their logarithms (rows sum to 1)", "use log_softmax instead of softmax"
    if not math.isnan(seen.low) and not seen.log_error <= log_tolerance(seen) and not is_complement(seen):
        return (
            f"gets raw scores: logsumexp of a row is {seen.log_error:.3g} from 0, limit {log_tolerance(seen):.2g}",
            "use cross_entropy, or log_softmax before nll_loss",
        )
    return "", ""


def _wrong_binary(seen: BinaryLoss) -> tuple[str, str]:
    origin = seen.origin.name if seen.origin is not None else ""
    if seen.logits and origin in ("log_softmax", "logsigmoid"):
        return f"gets the output of {origin}", f"give it the scores: remove the {origin} before the loss"
    if not seen.logits and not (seen.low >= 0 and seen.high <= 1):
        return (
            f"gets {seen.low:.3g} to {seen.high:.3g}; probabilities lie in [0, 1]",
            "use binary_cross_entropy_with_logits for scores, or a sigmoid before the loss",
        )
    if not seen.logits and origin == "clamp" and seen.edges > CUT:
        return (
            f"gets scores that are cut to {seen.low:.3g} … {seen.high:.3g}: {seen.edges:.0%} lie at an edge",
            "use binary_cross_entropy_with_logits without the clamp, or a sigmoid in its place",
        )
    if not seen.logits and origin == "softmax" and _over_one(seen.origin):
        return "gets a softmax over one output, which is always 1", "use a sigmoid for one output"
    return "", ""


def _over_one(origin: Origin | None) -> bool:
    return origin is not None and origin.axis is not None and origin.shape[origin.axis] == 1
