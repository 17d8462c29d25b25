"""What single batches hold: finite values, information, scale."""

import math

from ..alerts import Severity, number
from ..evidence.data import Entry, Finiteness, FirstInputs
from .check import Findings, Skip, check

PIXELS = 255.0
"""Largest value of 8-bit images."""
LARGE_RMS = 50.0
"""Root mean square of what enters the first weights; standardised data have 1. Pixels of 8 bits have about 130."""
TWICE_AT_MOST = (1 + 1e-5) / PIXELS
"""What 255 becomes when it is divided by 255 twice."""
DISPARITY = 100.0
"""Largest over median root mean square of the features of a table; no learning rate suits both."""
NEARLY_ALL = 0.98
"""Share of zeros in an image of zeros and ones that is taken for an integer division. Drawings have up to 0.95."""
WEIGHING = ("linear", "conv", "lstm", "gru", "rnn", "matmul", "mm", "addmm", "einsum", "bilinear", "multi_head")
"""What the names of functions begin with that multiply their input with weights."""


@check("WD121", "non-finite-input", Severity.ERROR, Finiteness)
def non_finite_input(seen: Finiteness) -> Findings:
    """A batch holds NaN or infinity, and the loss went with it.

    **What it sees.** Every floating tensor of every batch, by one reduction on its device. In small tensors the place
    of the first NaN is kept; in large ones it is known for batches that are looked at closely.

    **Why it matters.** One such value makes the loss and all gradients NaN, and with the next step every weight.

    **How to fix.** Drop or impute missing values where the data are made, and assert it there: ::

        features = torch.nan_to_num(features)              # or drop the row
        assert torch.isfinite(features).all(), path

    **When to ignore.** Where the model itself masks missing values; the loss stays finite then, and the alert is an
    INFO. Attention masks of ``-inf`` are of that kind.

    **Limits.** The first 8 floating tensors of a batch. What a data set turns into zeros silently is not seen.

    **Sources.** Humbatova et al. 2020, taxonomy of real faults: missing values in training data.
    """
    if not seen.value:
        return
    place = f"batch {seen.batch}, {seen.path}"
    if seen.index:
        names = ("sample", "feature") if len(seen.index) == 2 else ("sample", "position")
        rest = ", ".join(map(str, seen.index[1:]))
        place += f", {names[0]} {seen.index[0]}" + (f", {names[1]} {rest}" if rest else "")
    harmless = seen.loss_finite is not False
    if harmless and seen.value == "-inf":
        return
    text = f"{seen.value} in {place}" + (" (the loss stayed finite)" if harmless and seen.loss_finite else "")
    yield non_finite_input.alert(
        seen,
        text[:99],
        severity=Severity.INFO if harmless else None,
        hint="drop or impute these values where the data are made, and assert torch.isfinite(x).all() there",
        subjects=(seen.path,),
        evidence={
            "batch": seen.batch,
            "value": seen.value,
            "index": ", ".join(map(str, seen.index)),
            "loss_finite": seen.loss_finite,
        },
    )


def _named(entry: Entry) -> str:
    return entry.path or f"the input of {entry.operation}"


def _empty(entry: Entry) -> str:
    """Why the tensor says nothing about a sample, or nothing."""
    if entry.deviation == 0 and entry.low == entry.high:
        return f"every value is {number(entry.low)}"
    if entry.equal_rows and entry.shape[0] >= 4:
        return f"all {entry.shape[0]} samples are the same"
    image = len(entry.shape) == 4 and (entry.shape[1] in (1, 3) or entry.shape[3] in (1, 3))
    if image and entry.low == 0 and entry.high == 1 and entry.whole == 1 and entry.zeros >= NEARLY_ALL:
        return f"{entry.zeros:.1%} of the pixels are 0, the rest 1"
    return ""


def _is_label(entry: Entry) -> bool:
    """Is it one label per sample, as an index or one-hot?"""
    if len(entry.shape) == 1:
        return entry.operation == "embedding"
    hot = entry.low == 0 and entry.high == entry.whole == 1 and len(entry.shape) == 2
    return hot and math.isclose(entry.zeros, 1 - 1 / entry.shape[1], rel_tol=1e-3)


@check("WD122", "constant-input", Severity.ERROR, FirstInputs)
def constant_input(seen: FirstInputs) -> Findings:
    """What enters the model is the same for all samples, or all zero.

    **What it sees.** Every tensor with data of the first batch as it enters the first weights. It alerts when none of
    them tells one sample from another: constant, equal in all samples (whatever their axis; the members of an ensemble
    may get one batch), or images of zeros and hardly any ones.

    **Why it matters.** Nothing can be learned but the frequency of the labels, and the loss falls to just that.

    **How to fix.** Look at one batch. An integer division is the usual cause: ::

        x = pixels // 255          # uint8 // int: 0, and 1 where a pixel is 255
        x = pixels.float() / 255

    Others: a ``__getitem__`` that ignores its index, a normalisation applied twice or with a standard deviation of 0,
    a mask that covers everything.

    **When to ignore.** Where one sample is repeated on purpose.

    **Limits.** The first batch only; not where the step is compiled. A model with one informative input among constant
    ones is quiet. Occupancy grids with more than two channels are never taken for an integer division. Where nothing
    but labels enters, as indices or one-hot, numbers that the step draws may tell samples apart, and a batch may hold
    one class where data of the batch are what a loss wants.

    **Sources.** Humbatova et al. 2020: preprocessing; SageMaker Debugger's AllZero rule.
    """
    if seen.unread or not seen.entries:
        yield Skip(f"the input of {seen.unread[0]} cannot be read" if seen.unread else "no input met a weight")
        return
    if (seen.drawn or seen.generates) and all(map(_is_label, seen.entries)):
        yield Skip("labels alone enter: samples are made for them")
        return
    if all(_empty(e) for e in seen.entries):
        worst = max(seen.entries, key=lambda e: math.prod(e.shape))
        floor = worst.zeros >= NEARLY_ALL
        yield constant_input.alert(
            seen,
            f"{_named(worst)} {worst.shape} carries no information: {_empty(worst)}"[:99],
            hint="look for an integer division (x // 255) or a normalisation applied twice"
            if floor
            else "look at __getitem__ (does it use its index?) and at the last transform of the data",
            where=worst.where,
            evidence={"low": worst.low, "high": worst.high, "zeros": worst.zeros, "equal_rows": worst.equal_rows},
        )


@check("WD123", "unscaled-input", Severity.WARNING, FirstInputs, implied_by=("WD121",))
def unscaled_input(seen: FirstInputs, *, limit: float = LARGE_RMS) -> Findings:
    """Data enter the first weights unscaled: raw pixels, large numbers, or features of wildly different size.

    **What it sees.** The first batch as it enters a linear, convolutional or recurrent layer, so whatever the model
    divides or normalises before has been done: root mean square above ``limit`` (default 50, standardised data have 1),
    or one feature of a table above ``limit`` and more than 100 times the median one. Also a table that is attached to
    what embeddings made, where a linear layer takes both. And pixels that were divided by 255 twice: whole numbers of
    1/255², none above 1/255.

    **Why it matters.** Initialisations assume inputs of unit scale. Larger ones multiply the first logits and the
    gradients: ReLUs die in the first step, sigmoids saturate, and no learning rate suits all features at once.

    **How to fix.** Scale to zero mean and unit deviation with statistics of the training set: ::

        x = pixels.float()                       # before: 0 … 255
        x = (pixels.float() / 255 - mean) / std  # after
        x = (x - train.mean(0)) / train.std(0)

    **When to ignore.** Where the scale is meant and the learning rate was tuned to it. A first BatchNorm or LayerNorm,
    also after a convolution, makes it harmless: an INFO at most.

    **Limits.** The first batch only; not where the step is compiled.

    **Sources.** LeCun et al. 1998, Efficient BackProp, 4.3; SageMaker Debugger's input-image rule; measured on 44 image
    models: the first loss does not show it.
    """
    direct = [e for e in seen.entries if e.operation.strip("_").startswith(WEIGHING)]
    told: set[str] = set()
    for entry in sorted(direct, key=_rms, reverse=True):
        rms = _rms(entry)
        if entry.where and entry.where in told:
            continue
        uneven = entry.feature_high > DISPARITY * entry.feature_median and entry.feature_high > limit
        twice = entry.twice == 1 and entry.low >= 0 and entry.deviation > 0 and entry.high <= TWICE_AT_MOST
        if rms <= limit and not uneven and not twice:
            continue
        pixels = entry.low >= 0 and entry.high <= PIXELS and entry.high > PIXELS / 4 and len(entry.shape) > 1
        if uneven:
            text = (
                f"feature {entry.feature} of {_named(entry)} has rms {number(entry.feature_high)}, "
                f"the median one {number(entry.feature_median)}"
            )
            hint = "standardise each feature with the mean and deviation of the training set; take logs of long tails"
        elif twice:
            text = f"{_enters(entry, 'as', 'is')} 0..{number(entry.high)}: pixels divided by 255 twice"
            hint = "divide once: look for a ToTensor() or / 255 in the data set beside one in the step or the model"
        elif pixels:
            text = f"{_enters(entry, 'as', 'is')} {number(entry.low)}..{number(entry.high)}, unscaled"
            hint = "divide by 255 and standardise before the first layer: x = (x.float() / 255 - mean) / std"
        else:
            text = f"{_enters(entry, 'with', 'has')} rms {number(rms)}, above {number(limit)}"
            hint = "standardise the inputs: zero mean, deviation 1"
        told.add(entry.where)
        yield unscaled_input.alert(
            seen,
            text[:99],
            severity=Severity.INFO if entry.normalised else None,
            hint=hint,
            subjects=(entry.path or entry.operation,),
            where=entry.where,
            evidence={
                "low": entry.low,
                "high": entry.high,
                "mean": entry.mean,
                "deviation": entry.deviation,
                "rms": rms,
            },
        )


def _rms(entry: Entry) -> float:
    return math.hypot(entry.mean, entry.deviation)


def _enters(entry: Entry, of_batch: str, computed: str) -> str:
    return f"{entry.path} enters {entry.operation} {of_batch}" if entry.path else f"{_named(entry)} {computed}"
