"""What the outputs of a network can express, against what its targets ask for."""

import math

from ..alerts import Severity
from ..evidence.losses import BinaryLoss, DistanceLoss, Likelihood, LossSeen, SoftmaxLoss
from ..evidence.targets import LabelHistory
from .check import Findings, Skip, check

SPARE = 4
"""Times as many outputs as classes in the labels; a spare background class or two is fine."""
SPARE_LEAST = 8
"""Outputs that must be unused."""
LABELS = 256
"""Labels seen before the verdict: were they spread over four times the classes, none of 256 would be missing."""
SPREAD = 0.8
"""Share of the classes up to the highest label that must occur: sorted data shows one class at a time."""
ZEROS = 0.2
"""Share of exact zeros, with no score below zero, that only a clip at zero leaves."""
BEYOND = 0.05
"""Share of the targets outside an activation's range: more than noise at its edge."""
RANGES = {
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "relu6": (0.0, 6.0),
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "logsigmoid": (-math.inf, 0.0),
}
CLIPPING = ("relu", "relu6", "tanh", "hardtanh", "gelu", "silu", "elu", "selu", "mish", "softplus", "logsigmoid")
HALF_LOG_ERROR = 0.1
"""Largest logsumexp of log-probabilities in half precision; what is further off was multiplied by something."""
ROUNDING = 1e-3
"""Relative; float32 sums of a batch differ by less."""
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
FLOAT_EPS = 2.0**-20
"""Of float32, with room for sums over many terms."""


@check("WD106", "unused-outputs", Severity.WARNING, LabelHistory, implied_by=("WD105", "WD110"))
def unused_outputs(seen: LabelHistory) -> Findings:
    """The head has many times more outputs than there are classes in the labels.

    **What it sees.** The highest label of the samples so far against the number of outputs, once 256 labels have been
    seen, nearly all classes up to the highest one occurred, and the highest has not risen lately. Language models,
    where most of a vocabulary never turns up, and contrastive losses are left out.

    **Why it matters.** Usually the head of another data set (1000 outputs of ImageNet) was kept: the network first
    has to learn that most outputs never occur, and every metric over classes is off.

    **How to fix.** Give the head as many outputs as there are classes::

        model.fc = nn.Linear(model.fc.in_features, 1000)           # before
        model.fc = nn.Linear(model.fc.in_features, num_classes)    # after

    **When to ignore.** Where further classes come later, or another data set shares the head.

    **Limits.** Fewer than four times as many outputs are not accused, and a subset of the highest classes is not seen.

    **Sources.** Torchvision's fine-tuning tutorial replaces the head for this reason.
    """
    high, used = seen.highs[-1], seen.highs[-1] + 1
    if seen.tokens:
        yield Skip("targets are tokens or candidates")
    elif sum(seen.counts) < LABELS:
        yield Skip(f"fewer than {LABELS} labels seen")
    elif (
        seen.classes >= SPARE * used
        and seen.classes - used >= SPARE_LEAST
        and seen.distinct >= max(2.0, SPREAD * used)
        and seen.highs[len(seen.highs) // 2] == high
    ):
        yield unused_outputs.alert(
            seen,
            f"{seen.classes:,} outputs, but no label above {high:,} in {sum(seen.counts):,} labels",
            hint=f"give the head {used:,} outputs, or look for labels that lost their higher classes",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"outputs": seen.classes, "highest_label": high, "labels": sum(seen.counts)},
        )


@check("WD107", "clipped-outputs", Severity.WARNING, LossSeen, implied_by=("WD102",))
def clipped_outputs(seen: LossSeen) -> Findings:
    """An activation keeps the outputs from values that the loss needs.

    **What it sees.** The activation that made the scores of a classification loss (ReLU, tanh and others that cut one
    side off), or scores of which none is negative and many are exactly 0. For regression losses, and for squared and
    absolute errors by hand that are averaged as they are: an activation whose range leaves out more than 5 % of the
    targets, or a ReLU all of whose outputs are 0; and outputs of which none is negative and many are exactly 0, beside
    targets below 0.

    **Why it matters.** A clipped score cannot say "certainly not this class", has no gradient where it is clipped, and
    may be stuck at 0 from the first step. Targets outside the range can never be reached.

    **How to fix.** End the network in a linear layer; for bounded targets use an activation of their range::

        nn.Sequential(..., nn.Linear(64, 10))            # no ReLU after it

    **When to ignore.** Where the targets outside the range are outliers that shall be cut off.

    **Limits.** Activations are seen in the first steps, where nothing is compiled, and only if nothing but views and
    casts come after them: a tanh that is scaled again (soft-capped logits) is fine. Targets are left alone where a mask
    may stand between single errors and their sum. Sigmoids before a loss that applies its own are WD102.

    **Sources.** Wrong final activations lead the fault classes of DeepFD, NeuraLint and AutoTrainer.
    """
    origin = seen.origin
    name = origin.name if origin is not None else ""
    made = f" at {origin.where}" if origin is not None and origin.where else ""
    message = hint = ""
    if isinstance(seen, (SoftmaxLoss, BinaryLoss)):
        logits = not (isinstance(seen, BinaryLoss) and not seen.logits) and seen.function != "nll_loss"
        clipped = seen.low == 0 and seen.high > 0 and seen.zeros > ZEROS and not seen.raw
        if logits and name in CLIPPING:
            message = f"the scores end in {name}: {seen.low:.3g} to {seen.high:.3g}, {seen.zeros:.0%} exactly 0"
        elif logits and clipped:
            message = f"no score is below 0 and {seen.zeros:.0%} are exactly 0 (limit {ZEROS:.0%})"
        hint = f"remove the {name or 'activation'}{made} after the last layer"
    elif isinstance(seen, DistanceLoss):
        if name in ("relu", "relu6") and seen.low == seen.high == 0 and seen.target_high > 0:
            message = (
                f"every output is exactly 0 after {name}; targets are {seen.target_low:.3g} to {seen.target_high:.3g}"
            )
        elif name in RANGES and _beyond(seen, *RANGES[name]) > BEYOND:
            low, high = RANGES[name]
            message = (
                f"{_beyond(seen, low, high):.0%} of the targets are outside {name}'s range [{low:g}, {high:g}], "
                f"limit {BEYOND:.0%}"
            )
        elif name in ("", "clamp") and seen.low == 0 < seen.high and seen.zeros > ZEROS and seen.negative > BEYOND:
            message = (
                f"no output is below 0 and {seen.zeros:.0%} are exactly 0, but {seen.negative:.0%} of the targets are"
                " negative"
            )
        hint = f"remove the {name or 'clamp'}{made}, or scale the targets into its range"
    else:
        yield Skip("no loss on outputs of a known range")
    if message:
        yield clipped_outputs.alert(
            seen,
            message,
            hint=hint,
            subjects=(seen.function,),
            where=seen.where,
            evidence={"activation": name, "low": seen.low, "high": seen.high},
        )


def _beyond(seen: DistanceLoss, low: float, high: float) -> float:
    """Share of the targets outside a range with edges among -1, 0, 1."""
    below = {0.0: seen.negative, -1.0: seen.below_minus_one}.get(low, 0.0)
    above = {1.0: seen.above_one, 0.0: 1 - seen.negative if seen.target_high > 0 else 0.0}.get(high, 0.0)
    return below + above


@check("WD108", "impossible-loss", Severity.ERROR, LossSeen, implied_by=("WD103", "WD105"))
def impossible_loss(seen: LossSeen) -> Findings:
    """A loss lies below what the best possible prediction could reach, or is minimised with its sign flipped.

    **What it sees.** The value of each cross entropy, binary cross entropy and regression loss against its lower
    bound for the very targets, weights and smoothing of the call (0 for hard labels, the entropy of soft ones). Also
    a step that minimises minus a loss on targets of the batch, the log-likelihood of the batch's own data (``log_prob``
    of torch's distributions, ``log_softmax`` at the labels, Cox's partial likelihood), a ``logsigmoid`` where nothing
    is frozen, the overlap of probabilities with its masks (Dice, IoU and Tversky by hand), or minus an error written by
    hand (squared, absolute, pinball), as all or as a plain term of its loss (a WARNING). Where another loss in it has
    its right sign, or several optimizers play, a difference is meant, and so may be minus a loss beside a term of
    another kind on the data. The divergence of a Gaussian from a fixed one, known by its algebra or made by
    ``kl_divergence``, is told beside other losses as well, and so are the smaller side of PPO's clipped surrogate that
    is minimised, and a log-scale (of a learned variance, of a flow's couplings) whose sign lets the loss fall with it
    and with the squares that it scales at once.

    **Why it matters.** A loss without a floor has no optimum: training runs away towards minus infinity, and a falling
    curve looks like success.

    **How to fix.** Look at the sign, then for scores that are no log-probabilities, targets outside [0, 1] and negative
    class weights::

        loss = -F.nll_loss(log_p, labels)    # before: nll_loss has its minus already
        loss = F.nll_loss(log_p, labels)     # after
        loss = -Normal(mean, scale).log_prob(y).mean()

    **When to ignore.** Where a network shall get worse on purpose (unlearning, adversarial steps). Never else;
    likelihoods of densities, which may be negative, are not judged.

    **Limits.** Of losses written by hand only these are judged, in the first step, where sums, means and numbers as
    factors are all that stands between them and the loss. The sign of a policy gradient without clipping is not known:
    what weighs it may be a cost.

    **Sources.** Gibbs' inequality: cross entropy is at least the entropy of its targets. For the same reason a
    ``kl_div`` is negative only where its input is no log-probabilities, which is ``wrong-loss-input``.
    """
    if seen.negated:
        message, hint = _what_is_negated(seen)
        yield impossible_loss.alert(
            seen,
            message,
            hint=hint,
            severity=Severity.WARNING,
            subjects=(seen.function,),
            where=seen.where,
            evidence={"value": seen.value},
        )
    bound = 0.0 if isinstance(seen, DistanceLoss) else getattr(seen, "perfect", math.nan)
    if math.isnan(bound) or math.isnan(seen.value) or _is_weighted(seen):
        yield Skip("no loss with a known bound")
    elif seen.value < bound - _rounding(seen, bound):
        yield impossible_loss.alert(
            seen,
            f"{seen.function} is {seen.value:.4g}; the best possible prediction costs {bound:.4g}",
            hint="look for scores that are no log-probabilities, targets outside [0, 1] or negative weights",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"value": seen.value, "bound": bound},
        )


def _rounding(seen: LossSeen, bound: float) -> float:
    """By how much the value may lie off: each term is rounded to its own size, and each row's softmax to that of 1."""
    size = max(abs(bound), abs(seen.value))
    terms = max(size, getattr(seen, "terms", 0.0)) + getattr(seen, "mass", 0.0)
    return max(ROUNDING * EPS_FACTOR.get(seen.dtype, 1.0) * max(1.0, size), 2 * EPS.get(seen.dtype, FLOAT_EPS) * terms)


def _what_is_negated(seen: LossSeen) -> tuple[str, str]:
    """What the step does, and what to do about it."""
    if not isinstance(seen, Likelihood) or seen.distance:
        message = f"the step minimises minus {seen.function} ({-seen.value:.4g}): each step makes it worse"
        return message, "return the loss itself, not its negative"
    if seen.divergence:
        return (
            f"the step minimises minus a {seen.function}: codes run away from their prior",
            "add it: loss = error + kl, with kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()",
        )
    if seen.surrogate:
        return (
            "the step minimises the smaller of two clipped products, which is to be enlarged",
            "put a minus in front: loss = -torch.min(ratio * advantage, clipped * advantage).mean()",
        )
    if seen.scale:
        return (
            "the loss falls with a log-scale, and with what it scales: nothing holds the two",
            "turn its sign: error**2 * (-s).exp() + s, and -(log_prob(z) + s.sum(1)) for z = x * s.exp()",
        )
    if seen.function == "overlap":
        message = "the step minimises an overlap with the batch's own masks: each step makes it smaller"
        return message, "return 1 - overlap: the best is an overlap of 1"
    message = f"the step minimises {seen.function} of the batch's own data: each step makes them less likely"
    return message, "put a minus in front: a loss is minus the log-likelihood"


def _is_weighted(seen: LossSeen) -> bool:
    """Log-probabilities times something, as in policy gradients."""
    picks = isinstance(seen, SoftmaxLoss) and seen.function == "nll_loss" and seen.logs
    return picks and not getattr(seen, "log_error", math.nan) < HALF_LOG_ERROR


EPS_FACTOR = {"float16": 4.0, "bfloat16": 16.0}
"""Half formats round the value itself by up to 0.4 %."""
