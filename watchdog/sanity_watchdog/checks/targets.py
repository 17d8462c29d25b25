"""Targets that a loss cannot mean."""

import math

from ..alerts import Severity
from ..evidence.alignments import AlignmentTargets
from ..evidence.targets import TargetRange, TokenTargets
from .alignments import alignment_fault
from .check import Findings, Skip, check
from .doubtful import RAW

BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
SIGNED = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss", "hinge")
ROUNDING = 2e-2
"""Distance of the sum of a soft target from 1 that half precision may cause."""
PADDED = 0.3
"""Share of the targets that count inside runs of one token at the ends of rows; text has none there."""
INSIDE = 0.1
"""Share of the other targets from which on that token is data, as black is in rasters and rests are in music. A token
that pads stands alone at the ends; where it also opens or closes a text there is one of it per row."""
AGREES = 0.95
"""Share of targets that equal the ids at one offset; noise and special tokens break a few."""
TOKENS = 16
"""Targets and different ids that a verdict on alignment needs."""
VARIED = 4


@check("WD105", "bad-targets", Severity.ERROR, TargetRange, implied_by=("WD403",))
def bad_targets(seen: TargetRange) -> Findings:
    """The targets are not what the loss function takes them for.

    **What it sees.** Class labels outside 0 … k-1, negative ones that are not ``ignore_index``, labels all of which
    are ignored, an ``ignore_index`` that is one of the classes, soft targets that are negative or do not sum to 1,
    binary targets outside [0, 1], counts below 0 and 0/1 labels where -1/1 are meant (also by a hinge written by
    hand, ``relu(1 - labels * scores)``, in the first step). For ``ctc_loss``: letters
    that are the blank, and targets that need more steps than their input has (one per letter, one more between
    equal ones); with ``zero_infinity`` only where these are half of the batch or more. Also when the loss call
    itself raised.

    **Why it matters.** On a GPU a label out of range ends in a device-side assert with a misleading trace, possibly
    late in an epoch. Where nothing crashes the loss is NaN, has no floor, or leaves a class out.

    **How to fix.** By what the range shows::

        labels = labels - 1                                  # 1 … k
        F.cross_entropy(scores, labels, ignore_index=255)    # 255 marks "no label"
        F.binary_cross_entropy_with_logits(z, mask / 255)    # 0 … 255
        F.ctc_loss(log_p, letters, frames // stride, (letters != pad).sum(1))

    **When to ignore.** Where a class is left out of the loss on purpose by its index.

    **Limits.** Labels that are wrong but inside the range cannot be seen. Between samples only the range is kept.
    Targets of binary losses and of counts are left alone where a mask may stand between single losses and their sum.

    **Sources.** PyTorch's documentation of each loss; Humbatova et al., Taxonomy of Real Faults in Deep Learning.
    """
    severity, message, hint = _fault(seen)
    if message:
        yield bad_targets.alert(
            seen,
            message,
            hint=hint,
            severity=severity,
            subjects=(seen.function,),
            where=seen.where,
            evidence={
                "low": seen.low,
                "high": seen.high,
                "outputs": seen.classes,
                "valid": seen.valid,
                "total": seen.total,
                "dtype": seen.dtype,
            },
        )


def _fault(seen: TargetRange) -> tuple[Severity, str, str]:
    error = Severity.ERROR
    if isinstance(seen, AlignmentTargets):
        return alignment_fault(seen)
    if seen.function in BINARY and (seen.low < 0 or seen.high > 1):
        scale = f"divide by {seen.high:g}" if seen.low == 0 else "map the labels to 0 and 1"
        return error, f"binary targets span {seen.low:g} … {seen.high:g}; they must lie in [0, 1]", scale
    elif seen.function == "poisson_nll_loss" and seen.low < 0:
        return error, f"{seen.function} takes counts; targets go down to {seen.low:.3g}, so it has no floor", RAW
    elif seen.function in SIGNED and seen.low == 0 and seen.high == 1:
        return error, f"{seen.function} takes labels -1 and 1; these are 0 and 1", "use 2 * labels - 1"
    elif seen.classes:
        return _labels_fault(seen)
    elif seen.low < 0 and not math.isnan(seen.sum_low):
        return (
            error,
            f"soft targets go down to {seen.low:.3g}; probabilities are ≥ 0",
            "make them probabilities: softmax or division by their sum",
        )
    elif seen.sum_low < 1 - ROUNDING or seen.sum_high > 1 + ROUNDING:
        if len(seen.input_shape) == 1:
            return (
                error,
                f"scores {seen.input_shape} are taken as one sample of {seen.input_shape[0]} classes",
                "give scores (N, k) and labels (N,) as int64; for one output use binary_cross_entropy_with_logits",
            )
        return (
            Severity.WARNING,
            f"soft targets of cross entropy sum to {seen.sum_low:.3g} … {seen.sum_high:.3g}, not 1",
            "use binary_cross_entropy_with_logits for several labels per sample, or divide by their number",
        )
    if seen.error:
        return _raised(seen)
    return error, "", ""


def _labels_fault(seen: TargetRange) -> tuple[Severity, str, str]:
    error, k = Severity.ERROR, seen.classes
    if seen.error and _has_classes_last(seen):
        return _raised(seen)
    if seen.valid == 0:
        if seen.reduction == "mean" and seen.total:
            return (
                error,
                f"all {seen.total:,} labels equal ignore_index ({seen.ignore_index}): the mean divides 0 by 0",
                "skip such batches, or divide a sum by max(1, the number of valid labels)",
            )
        return error, "", ""
    if seen.low < 0 or seen.high >= k:
        text = f"labels span {seen.low:g} … {seen.high:g}, but there are {k:,} outputs (0 … {k - 1:,})"
        if seen.low >= 1 and seen.high == k:
            return error, text, f"the labels start at 1: subtract 1, or give the head {k + 1:,} outputs"
        if seen.low == -1 and seen.high == k - 2:
            return (
                error,
                text,
                "the labels start at -1: add 1; if -1 marks targets without a label, pass ignore_index=-1",
            )
        if seen.low < 0 and seen.high < k:
            return error, text, f"if {seen.low:g} marks targets without a label, pass ignore_index={seen.low:g}"
        if seen.high == 255:
            return error, text, "if 255 marks targets without a label, pass ignore_index=255"
        return error, text, f"give the head {seen.high + 1:,.0f} outputs, or look for labels of another data set"
    ignored = seen.total - seen.valid
    if seen.ignore_index is not None and 0 <= seen.ignore_index < k and ignored > 0 and seen.whole_samples:
        return (
            Severity.WARNING if seen.low == 0 or seen.ignore_index == 0 else Severity.INFO,
            f"ignore_index {seen.ignore_index} is one of the {k:,} classes: {ignored:,} of {seen.total:,} left out",
            "leave ignore_index at -100 unless that class shall not be learned",
        )
    return (error, "", "") if not seen.error else _raised(seen)


def _has_classes_last(seen: TargetRange) -> bool:
    return len(seen.input_shape) > 2 and seen.shape == seen.input_shape[:-1]


def _raised(seen: TargetRange) -> tuple[Severity, str, str]:
    """What the shapes and formats say of a call that raised."""
    scores, targets, error = seen.input_shape, seen.shape, Severity.ERROR
    text = f"{seen.function} got targets {targets} as {seen.dtype} for scores {scores}"
    if seen.function in BINARY or seen.function in SIGNED:
        same = scores != targets and math.prod(scores) == math.prod(targets)
        fix = "give both the same shape, such as scores.squeeze(1)" if same else f"fix the call: {seen.error}"
        return error, text, fix[:200]
    if seen.dtype.startswith(("float", "bfloat")) and len(targets) < len(scores):
        return error, text, "use labels.long(): class indices are int64"
    if targets == scores and scores:
        return error, text, "use labels.argmax(1) for one-hot labels, or labels.float() for probabilities"
    if seen.dtype in ("int32", "int16", "int8", "uint8", "bool"):
        return error, text, "use labels.long(): class indices are int64"
    if len(targets) == len(scores) and targets[1:2] == (1,):
        return error, text, "use labels.squeeze(1): one class index per sample"
    if _has_classes_last(seen):
        return error, text, "the classes must be axis 1: use scores.movedim(-1, 1), or flatten both"
    return error, text, f"fix the call: {seen.error}"[:200]


@check("WD111", "padding-in-loss", Severity.WARNING, TokenTargets)
def padding_in_loss(seen: TokenTargets) -> Findings:
    """Padding counts as a target.

    **What it sees.** The share of the targets that count which lie in runs of one and the same token at the ends of
    rows. Above 30 % it is padding: text does not end every row in a repeated token. Where the targets are labels of
    the tokens: the share of those whose token is one that stands nowhere but in such runs, of different length, if all
    of them have one label.

    **Why it matters.** The network mostly learns to predict padding. The loss looks excellent because that is easy,
    and hides how little is learned about the rest.

    **How to fix.** Leave padding out of the loss::

        F.cross_entropy(scores.flatten(0, 1), ids.flatten())                         # before
        F.cross_entropy(scores.flatten(0, 1), ids.flatten(), ignore_index=pad_id)    # after

    **When to ignore.** Where the repeated token is data that hardly occurs elsewhere in the rows.

    **Limits.** A token that is a tenth of the other targets too is taken for data, as black in rasters. Padding at
    the beginning of rows, and less than 30 %, are not seen. Only losses whose targets belong to the ids of an embedding
    are judged, and those of ``ctc_loss``; with ``reduction="none"``, and where log-probabilities are picked by hand,
    only where nothing stands between them and their sum. With class weights nothing is judged.

    **Sources.** Data collators of Hugging Face Transformers set padded labels to -100 for this reason.
    """
    if seen.padding > PADDED and seen.inside < INSIDE:
        yield padding_in_loss.alert(
            seen,
            f"{seen.padding:.0%} of the {seen.valid:,} targets are token {seen.token} in a run to the end of a row, "
            f"limit {PADDED:.0%}",
            hint=f"count in target_lengths only what stands before the first {seen.token} of that run"
            if seen.function == "ctc_loss"
            else f"pass ignore_index={seen.token}, or set these targets to -100",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"share": seen.padding, "token": seen.token, "targets": seen.valid, "row": seen.length},
        )
    elif seen.labelled > PADDED:
        yield padding_in_loss.alert(
            seen,
            f"{seen.labelled:.0%} of the {seen.valid:,} targets belong to padding of the input, all of one label, "
            f"limit {PADDED:.0%}",
            hint="set the labels of padding to ignore_index (-100), or leave these positions out with a mask",
            subjects=(seen.function,),
            where=seen.where,
            evidence={"share": seen.labelled, "targets": seen.valid, "row": seen.length},
        )


@check("WD112", "misaligned-targets", Severity.ERROR, TokenTargets)
def misaligned_targets(seen: TokenTargets) -> Findings:
    """The targets of a language model are not the next tokens.

    **What it sees.** How well the targets agree with the ids that went in, at the same position, one and two positions
    ahead and one behind. Equal to the input or behind it is a fault where the network is causal (a causal mask or a
    one-way recurrence was seen), and so is equal to it where only some tokens count, as in a masked language model;
    two ahead means that they were shifted twice.

    **Why it matters.** A causal network that has to predict the token it is reading learns to copy: the loss goes to 0
    and it generates nonsense. Shifted twice, it learns to skip every other token.

    **How to fix.** Shift exactly once, either by hand or in the model::

        logits = model(ids[:, :-1]); loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss = hf_model(input_ids=ids, labels=ids).loss      # shifts by itself
        ids[chosen] = mask_id; labels[~chosen] = -100        # a masked language model

    **When to ignore.** Where copying is the task.

    **Limits.** Without a sign of causality (autoencoders) equal targets of all tokens are normal and not accused. Rows
    that repeat themselves agree at several offsets and are left alone.

    **Sources.** Measured on GPT-2, Llama, BERT and T5 of Transformers, whose losses are all quiet.
    """
    agreement = dict(seen.agreement)
    if seen.valid < TOKENS or seen.distinct < VARIED or not agreement:
        yield Skip("too few tokens to compare")
        return
    best, share = max(agreement.items(), key=lambda pair: pair[1])
    if share < AGREES or agreement.get(1, 0.0) >= AGREES:
        return
    texts = {
        0: ("equal the input at the same position", "shift by one: predict ids[:, 1:] from ids[:, :-1]"),
        -1: ("are the tokens before, which the network has read", "shift the other way: predict ids[:, 1:]"),
        2: ("are two positions ahead: shifted twice", "drop one of the two shifts; a model given labels shifts itself"),
    }
    unmasked = best == 0 and not seen.causal and seen.left_out >= VARIED
    if best not in texts or (best == 2 and seen.elsewhere) or (best < 1 and not seen.causal and not unmasked):
        return
    message, hint = texts[best]
    if unmasked:
        hint = "hide them: put the mask token into the input where a target counts (most of the time)"
    yield misaligned_targets.alert(
        seen,
        f"{share:.0%} of the targets {message}",
        hint=hint,
        subjects=(seen.function,),
        where=seen.where,
        evidence={"offset": best, "share": share, "one_ahead": agreement.get(1, 0.0), "targets": seen.valid},
    )
