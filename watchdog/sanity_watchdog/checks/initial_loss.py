"""The first loss, before any weight has changed."""

import math

from ..alerts import Alert, Severity
from ..evidence.first_loss import FirstLoss
from .check import Findings, Skip, check

ERRORS = 4.0
"""Standard errors added to every limit: one batch is a sample."""
NOTE = 0.3
"""Nats. Nine in ten of 158 real architectures start within 0.2 of ln k."""
HIGH = 1.0
"""Nats. With 4 standard errors no undisputed one of 336 first batches of those lay above."""
CERTAIN = 3.0
"""Nats, or ln k where that is more: no reading of the batch makes such a start a healthy one."""
FEW = 8
"""Targets below which a sum is no multiple worth calling one."""
MEAN_RATE = 0.5
"""Learning rate times targets up to which plain gradient descent on a sum is scaled on purpose."""
LARGE_HEAD = 1.5
"""rms of the head's weights times the square root of its inputs; 0.18 to 1.0 in ordinary models."""
NOT_FINITE = "look for NaN or infinite values in the batch, then for an overflow or a division by zero before the loss"
CHOSEN = "nothing to do if the scale of these products, of normalised vectors or of codes, is meant; else lower it"
SHARE = 0.7
"""Share of the excess that one cause must explain to be named."""


@check(
    "WD101",
    "initial-loss-off",
    Severity.ERROR,
    FirstLoss,
    implied_by=("WD103", "WD105", "WD111", "WD121", "WD123", "WD142"),
)
def initial_loss_off(seen: FirstLoss, *, tolerance: float = HIGH) -> Findings:
    """The first loss is not what a network that knows nothing must have.

    **What it sees.** The values that the loss function was given in the run's own first training step, before any
    weight has changed. A network that knows nothing gives each of k classes 1/k, so cross entropy is ln k per target
    (2.303 for ten classes) and binary cross entropy ln 2 per output (of a softmax over k classes ln k where the answer
    is yes). It is compared per target, without class weights, smoothing and ignored labels, for each loss call on its
    own, whatever the step returns in the end. INFO above 0.3 nats or far below, WARNING above ``tolerance`` (1.0),
    ERROR above max(3, ln k), each plus 4 standard errors of this batch. A sum over the targets that nothing divides is
    an ERROR as well, because its gradient is as many times too large; it is INFO where the Trainer clips gradients to a
    norm, which takes their size away, and where plain SGD's learning rate times the number of targets is at most 0.5,
    as it is where the rate was chosen for a sum.

    **Why it matters.** The first steps are spent on undoing a start that is confidently wrong, and the cause (a head
    that is far too large, unscaled inputs, a sum where a mean is meant, a sign or label order) rarely heals by
    itself.

    **How to fix.** Follow the hint. For a head that is too large::

        nn.init.normal_(head.weight, std=head.in_features ** -0.5)   # not std=1
        nn.init.zeros_(head.bias)

    For a sum::

        nn.CrossEntropyLoss(reduction="mean")                        # not "sum"

    **When to ignore.** Where the scale of the scores is a choice, as with heads that a package draws by fan-out
    (EfficientNet, DLA) or with a large logit scale. Trained weights, a bias set to the class frequencies and an
    adapter on a trained base start below ln k; that is never more than INFO. Scores made of normalised vectors
    (ArcFace, CLIP) or as products of codes that are drawn (graph autoencoders) are never more than INFO either, nor are
    probabilities that no activation made (noisy-or, sums over
    classes). Contrastive losses, whose targets are positions of candidates, are compared with ln of the candidates,
    upwards only; large scores make single samples swing, so there one standard error above max(3, ln k) is a WARNING.

    **Limits.** A head five times too large and a healthy one of T5 or Mamba have the same first loss; the head's own
    scale (above 1.5) is the second witness that then makes 0.3 nats an INFO. Probabilities in place of logits start
    at ln k too: see WD102. Skipped for resumed runs, where the step subtracts stored weights from a matrix that trains
    (EWC, L2-SP), which is a sign of earlier training too, and for losses that no known function computes; there
    ``num_classes`` or ``expected_loss`` lets the step's total be judged. A single target has no standard error and no
    verdict. Of a loss written by hand only a ``log_softmax`` in it is seen: what its scores would cost with labels
    drawn at random is then judged instead, as a WARNING at most, and not beside those of a model without a gradient.

    **Sources.** Karpathy, A Recipe for Training Neural Networks ("verify loss @ init"). The limits were measured on
    336 first batches of 158 architectures trained from scratch.
    """
    if seen.resumed:
        yield Skip("continues an earlier run")
        return
    excess = seen.excess
    if not math.isfinite(excess):
        message = f"first loss is {seen.seen}, expected {seen.expected:.3f} ({seen.name})"
        yield _alert(seen, Severity.ERROR, message, NOT_FINITE)
        return
    if seen.undivided and seen.kind == "softmax" and seen.targets >= FEW:
        yield _summed(seen)
    if not math.isfinite(seen.standard_error):
        yield Skip("a single target has no standard error")
        return
    slack = ERRORS * seen.standard_error
    certain, high, note = max(CERTAIN, math.log(max(seen.classes, 1))), tolerance, min(NOTE, tolerance)
    limit = next((x for x in (certain, high, note) if excess > x + slack), 0.0)
    severity = {certain: Severity.ERROR, high: Severity.WARNING}.get(limit, Severity.INFO)
    if seen.contrastive and excess > certain + seen.standard_error and limit != certain:
        limit, slack, severity = certain, seen.standard_error, Severity.WARNING
    if not limit and excess > note and seen.head_scale > LARGE_HEAD:  # the second witness stands in for the error
        limit, slack = note, 0.0
    if limit:
        most = Severity.INFO if seen.cosine or seen.derived else Severity.WARNING if seen.kind == "scores" else severity
        severity = min(severity, most)
        what = "any labels would cost" if seen.kind == "scores" else "first loss"
        yield _alert(
            seen,
            severity,
            f"{what} {seen.seen:.4g}, expected {seen.expected:.3f} ({seen.name}): "
            f"{excess:.3g} above, limit {limit + slack:.3g}",
            _why_high(seen),
        )
    elif (
        seen.kind not in ("binary", "divergence")
        and not seen.contrastive
        and excess < -(NOTE + slack)
        and _below_prior(seen, slack)
    ):
        yield _alert(
            seen,
            Severity.INFO,
            f"first loss {seen.seen:.4g}, expected {seen.expected:.3f} ({seen.name}): "
            f"{-excess:.3g} below, limit {NOTE + slack:.3g}",
            "nothing to do for trained weights; else look for padding or zeros that dilute the mean, or another k",
        )
    if seen.in_bits:
        yield _alert(
            seen,
            Severity.INFO,
            f"the step's loss is {1 / math.log(2):.3f} times the first loss {seen.reported:.4g}: bits, not nats",
            "compare the curve with log2 of the classes, or drop the division by ln 2",
        )


def _alert(seen: FirstLoss, severity: Severity, message: str, hint: str) -> Alert:
    evidence: dict[str, str | int | float] = {
        "seen": seen.seen,
        "expected": seen.expected,
        "standard_error": seen.standard_error,
        "classes": seen.classes,
        "targets": seen.targets,
        "reduction": seen.reduction,
    }
    for name in ("reported", "if_uniform", "if_constant", "spread", "fit", "head_scale"):
        if math.isfinite(getattr(seen, name)):
            evidence[name] = getattr(seen, name)
    return initial_loss_off.alert(
        seen, message, hint=hint, subjects=(seen.function,), severity=severity, where=seen.where, evidence=evidence
    )


def _summed(seen: FirstLoss) -> Alert:
    total = seen.reported if seen.reduction == "sum" else seen.seen * seen.targets
    meant = seen.clipped or seen.rate * seen.targets <= MEAN_RATE
    return _alert(
        seen,
        Severity.INFO if meant else Severity.ERROR,
        f"first loss {total:.4g} is a sum over {seen.targets:,} targets; "
        f"{seen.seen:.4g} each, expected {seen.expected:.3f} ({seen.name})",
        "none needed if the learning rate, or what gradients are clipped to, is meant for a sum"
        if meant
        else 'use reduction="mean", or divide by the number of targets',
    )


def _below_prior(seen: FirstLoss, slack: float) -> bool:
    """Is it also below what a bias set to the class frequencies gives?"""
    return not seen.seen >= seen.prior - NOTE - slack


def _why_high(seen: FirstLoss) -> str:
    """The most likely reason that the evidence supports."""
    excess = seen.excess
    ratio = seen.seen / seen.expected if seen.expected else math.nan
    if seen.kind == "returned":
        if abs(ratio * math.log(2) - 1) < 0.02:
            return "the loss is 1.443 times what is expected: it is in bits (log2), not nats"
        if ratio > 1.9 and abs(ratio / round(ratio) - 1) < 0.01:
            return f"the loss is {round(ratio)} times what is expected: a sum where a mean is meant?"
        return "look for a sum where a mean is meant, or for outputs whose scale is far from 1"
    if seen.kind == "divergence":
        return "the log-probabilities are sure and differ from the targets: scale the last layer or the inputs down"
    if seen.derived:
        return "nothing to do if arithmetic of your own makes these probabilities; else scale the scores down"
    if seen.cosine and seen.kind == "binary":
        return CHOSEN
    if seen.kind == "binary":
        return (
            f"the logits have mean {seen.common:.3g} and deviation {seen.spread:.3g}: scale the last layer's "
            "weights and the inputs down"
        )
    if seen.cosine:
        return CHOSEN
    if seen.contrastive:
        return "the scores are not normalised: use F.normalize on the embeddings, or a higher temperature"
    if seen.fit > SHARE * excess:
        return "the scores are sure and wrong: look for another order of the labels, or a flipped sign"
    if seen.head_scale > LARGE_HEAD:
        return (
            f"{seen.head or 'the last layer'} is large (rms·√inputs {seen.head_scale:.3g}, usual ≤ 1): "
            "draw new weights with std 1/√inputs; trained ones may be getting other inputs than they were trained on"
        )
    if seen.common > SHARE * excess and not seen.spread - seen.common > HIGH:
        head = f" ({seen.head})" if seen.head else ""
        return (
            f"every row favours class {seen.top_class} alike: reset the bias of the last layer{head}, "
            "or drop a factor on its scores"
        )
    return (
        "the scores are too large, not the last layer: drop a factor on them, scale the inputs or the layers before it"
    )
