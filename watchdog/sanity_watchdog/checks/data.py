"""Labels and data: order, finiteness, information, scale, repetition, the size of the last batch."""

import math
from collections import Counter

from ..alerts import Severity, number
from ..evidence.data import Entry, Finiteness, FirstInputs, LabelOrder, LastBatch, Repeats
from .check import Findings, Skip, check

CHANCE = 1e-6
"""Probability with which a shuffled loader may be accused of being sorted."""
UNCHANGING = 256
"""Equal labels in a row, from a loader that does not shuffle, that are taken for a sorted beginning: a class of 99 %
gives so many with a probability of 8 %, one of 97 % with 0.04 %."""
UNCHANGING_BATCHES = 8
PIXELS = 255.0
"""Largest value of 8-bit images."""
LARGE_RMS = 50.0
"""Root mean square of what enters the first weights; standardised data have 1. Pixels of 8 bits have about 130."""
DISPARITY = 100.0
"""Largest over median root mean square of the features of a table; no learning rate suits both."""
NEARLY_ALL = 0.99
"""Share of zeros in an image of zeros and ones that is taken for an integer division. Drawings have up to 0.95."""
FEW = 16
"""Distinct values below which equal fingerprints may be chance."""
REPEATED = 0.5
"""Share of the batches after the first that must be repetitions of an earlier one of the same epoch."""
NORMALISED = "normalised_"
"""What ``Entry.operation`` begins with where a normalisation follows the layer."""


@check("WD110", "one-class-batches", Severity.WARNING, LabelOrder)
def one_class_batches(seen: LabelOrder) -> Findings:
    """Successive batches hold one class each: the data are sorted by label and not shuffled.

    **What it sees.** Smallest and largest label of the last batches, read from the labels that a loss call got. Let m_c
    of n batches hold only class c. If batches were random, the probability of such a series would be at most
    (d + 1)^n · Π (m_c / m)^(B m_c) for d classes and batches of B; below 10⁻⁶ it alerts. Where the loader does not
    shuffle, 256 equal labels in a row are enough.

    **Why it matters.** The model forgets the other classes in each batch and swings from one to the next; BatchNorm
    learns the statistics of one class.

    **How to fix.** ``DataLoader(..., shuffle=True)``; shuffle the files of a stream and keep a shuffle buffer.

    **When to ignore.** Where batches are homogeneous on purpose, such as one speaker or one task per batch.

    **Limits.** Needs a loss that gets class labels of the batch itself. A stream that is sorted in longer runs than
    what was seen stays unknown until the class changes.

    **Sources.** The bound is the maximum likelihood of the series, times the number of ways to place its classes.
    """
    if not seen.batches:
        yield Skip("no class labels of the batch reached a loss")
        return
    single = [(size, low) for size, low, high in seen.batches if low == high and size > 1]
    kinds = Counter(low for _, low in single)
    against = sum(size * math.log(len(single) / kinds[low]) for size, low in single)
    ways = len(seen.batches) * math.log(len(kinds) + 1)
    labels = sum(size for size, _, _ in seen.batches)
    facts: dict[str, str | int | float | bool | None] = {
        "batches": len(seen.batches),
        "of_one_class": len(single),
        "classes_seen": len(kinds),
        "shuffled": seen.shuffled,
    }
    hint = "shuffle: DataLoader(..., shuffle=True), or a shuffle buffer for a stream"
    if against > ways - math.log(CHANCE):
        text = f"{len(single)} of {len(seen.batches)} batches hold a single class, of {len(kinds)} classes seen"
        yield one_class_batches.alert(seen, text, hint=hint, subjects=(seen.path,), evidence=facts)
    elif (
        seen.shuffled is False
        and len(single) == len(seen.batches) >= UNCHANGING_BATCHES
        and len(kinds) == 1
        and labels >= UNCHANGING
        and seen.classes != 1
    ):
        text = f"all {labels:,} labels of the first {len(single)} batches are {number(single[0][1])}; not shuffled"
        yield one_class_batches.alert(seen, text, hint=hint, subjects=(seen.path,), evidence=facts)


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


@check("WD122", "constant-input", Severity.ERROR, FirstInputs)
def constant_input(seen: FirstInputs) -> Findings:
    """What enters the model is the same for all samples, or all zero.

    **What it sees.** Every tensor with data of the first batch as it enters the first weights. It alerts when none of
    them tells one sample from another: constant, equal in all samples, or images of zeros and hardly any ones.

    **Why it matters.** Nothing can be learned but the frequency of the labels, and the loss falls to just that.

    **How to fix.** Look at one batch. An integer division is the usual cause: ::

        x = pixels // 255          # uint8 // int: 0, and 1 where a pixel is 255
        x = pixels.float() / 255

    Others: a ``__getitem__`` that ignores its index, a normalisation applied twice or with a standard deviation of 0,
    a mask that covers everything.

    **When to ignore.** Where one sample is repeated on purpose.

    **Limits.** The first batch only; not where the step is compiled. A model with one informative input among constant
    ones is quiet. Occupancy grids with more than two channels are never taken for an integer division.

    **Sources.** Humbatova et al. 2020: preprocessing; SageMaker Debugger's AllZero rule.
    """
    if seen.unread or not seen.entries:
        yield Skip(f"the input of {seen.unread[0]} cannot be read" if seen.unread else "no input met a weight")
        return
    reasons = [_empty(e) for e in seen.entries]
    if all(reasons):
        worst = max(seen.entries, key=lambda e: math.prod(e.shape))
        floor = worst.zeros >= NEARLY_ALL
        yield constant_input.alert(
            seen,
            f"{_named(worst)} {worst.shape} carries no information: {_empty(worst)}"[:99],
            hint="look for an integer division (x // 255) or a normalisation applied twice"
            if floor
            else "look at __getitem__ (does it use its index?) and at the last transform of the data",
            subjects=tuple(e.path for e in seen.entries if e.path),
            where=worst.where,
            evidence={"low": worst.low, "high": worst.high, "zeros": worst.zeros, "equal_rows": worst.equal_rows},
        )


@check("WD123", "unscaled-input", Severity.WARNING, FirstInputs, implied_by=("WD121",))
def unscaled_input(seen: FirstInputs, *, limit: float = LARGE_RMS) -> Findings:
    """Data enter the first weights unscaled: raw pixels, large numbers, or features of wildly different size.

    **What it sees.** The first batch as it enters a linear or convolutional layer, so whatever the model divides or
    normalises before has been done: root mean square above ``limit`` (default 50, standardised data have 1), or one
    feature of a table above ``limit`` and more than 100 times the median one.

    **Why it matters.** Initialisations assume inputs of unit scale. Larger ones multiply the first logits and the
    gradients: ReLUs die in the first step, sigmoids saturate, and no learning rate suits all features at once.

    **How to fix.** Scale to zero mean and unit deviation with statistics of the training set: ::

        x = (x.float() / 255 - mean) / std
        x = (x - train.mean(0)) / train.std(0)

    **When to ignore.** Where the scale is meant and the learning rate was tuned to it. A first BatchNorm or LayerNorm,
    also after a convolution, makes it harmless: an INFO at most.

    **Limits.** The first batch only; not where the step is compiled, nor the input of fused recurrent layers.

    **Sources.** LeCun et al. 1998, Efficient BackProp, 4.3; SageMaker Debugger's input-image rule; measured on 44 image
    models: the first loss does not show it.
    """
    direct = [e for e in seen.entries if e.operation.removeprefix(NORMALISED) in ("linear", "convolution")]
    for entry in sorted(direct, key=_rms, reverse=True):
        rms = _rms(entry)
        tolerant = entry.operation.startswith(NORMALISED)
        uneven = entry.feature_high > DISPARITY * entry.feature_median and entry.feature_high > limit
        if rms <= limit and not uneven:
            continue
        pixels = entry.low >= 0 and entry.high <= PIXELS and entry.high > PIXELS / 4 and len(entry.shape) > 1
        if uneven:
            text = (
                f"feature {entry.feature} of {_named(entry)} has rms {number(entry.feature_high)}, "
                f"the median one {number(entry.feature_median)}"
            )
            hint = "standardise each feature with the mean and deviation of the training set; take logs of long tails"
        elif pixels:
            text = f"{_named(entry)} enters {entry.operation} as {number(entry.low)}..{number(entry.high)}, unscaled"
            hint = "divide by 255 and standardise before the first layer: x = (x.float() / 255 - mean) / std"
        else:
            text = f"{_named(entry)} enters {entry.operation} with rms {number(rms)}, above {number(limit)}"
            hint = "standardise the inputs: zero mean, deviation 1"
        yield unscaled_input.alert(
            seen,
            text.replace(NORMALISED, "")[:99],
            severity=Severity.INFO if tolerant else None,
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


@check("WD124", "repeated-batch", Severity.WARNING, Repeats, implied_by=("WD122",))
def repeated_batch(seen: Repeats) -> Findings:
    """The same batch comes again within an epoch, or workers draw the same random numbers.

    **What it sees.** Up to 256 values of each of the largest tensors of the first 16 batches, compared within one
    epoch. And the attributes of the data set: a random generator that is kept there and used while loading is copied
    into every worker.

    **Why it matters.** A model trained on one batch memorises it. Workers that draw the same numbers give the same
    augmentation to different samples: less variety than believed, and nothing shows it.

    **How to fix.** Seed a stream once, not per shard; give each worker its part of a stream
    (``torch.utils.data.get_worker_info()``). Do not keep a generator on the data set, or seed it per worker: ::

        def seed_worker(i):
            torch.utils.data.get_worker_info().dataset.rng = numpy.random.default_rng(torch.initial_seed())

    **When to ignore.** Where one batch is repeated on purpose, as in a test of overfitting. ``overfit_batches`` and
    data sets of a few batches are quiet, since they repeat by the epoch.

    **Limits.** Periods beyond 8 batches are not found. A generator that the data set re-seeds itself in each worker
    cannot be told from one that it does not.

    **Sources.** github.com/pytorch/pytorch/issues/5059, copied generators in workers.
    """
    epochs: dict[int, set[int]] = {}
    again = [0, 0]
    for _, epoch, kind in seen.batches:
        known = epochs.setdefault(epoch, set())
        if known:
            again[0] += kind in known
            again[1] += 1
        known.add(kind)
    repeated, compared = again
    if seen.variety >= FEW and compared >= 3 and repeated >= 3 and repeated >= REPEATED * compared:
        kinds = len({kind for _, _, kind in seen.batches})
        text = f"{repeated} of {compared} batches repeat an earlier one of their epoch ({kinds} different)"
        several = seen.streaming and seen.workers > 1
        yield repeated_batch.alert(
            seen,
            text,
            hint="give each worker its part of the stream (torch.utils.data.get_worker_info())"
            if several
            else "seed the data's generator once, not per shard or item, and look at how indices are used",
            evidence={"repeated": repeated, "compared": compared, "different": kinds, "workers": seen.workers},
        )
    elif seen.generators and seen.workers > 1:
        yield repeated_batch.alert(
            seen,
            f"{seen.generators[0]} is copied into {seen.workers} workers: they draw the same numbers"[:99],
            hint="seed it per worker in worker_init_fn, from torch.initial_seed()",
            subjects=seen.generators,
            evidence={"workers": seen.workers},
        )


@check("WD125", "batch-of-one", Severity.WARNING, LastBatch)
def batch_of_one(seen: LastBatch) -> Findings:
    """The last batch of the epoch has one sample, and BatchNorm needs two.

    **What it sees.** The lengths of the sampler and of its batches, and the shapes that BatchNorm gets in the first
    step. Nothing is loaded for it.

    **Why it matters.** ``Expected more than 1 value per channel when training``: the run dies at the end of its first
    epoch.

    **How to fix.** ``DataLoader(..., drop_last=True)``, or another batch size.

    **When to ignore.** Where a sampler of your own never gives such a batch.

    **Limits.** Streams, batch samplers of unknown length, and layers that one sample gives several values per channel
    (images, sequences) are quiet. A variance over the batch that is written by hand is found by its NaN.

    **Sources.** ``torch.nn.functional.batch_norm``; arithmetic on lengths.
    """
    if seen.samples < 1 or seen.size < 2:
        yield Skip("the number of samples or the batch size is unknown")
    elif seen.samples % seen.size == 1 and seen.layers:
        yield batch_of_one.alert(
            seen,
            f"{seen.samples:,} samples in batches of {seen.size} leave a last batch of 1, too few for BatchNorm",
            hint="DataLoader(..., drop_last=True)",
            subjects=seen.layers,
            evidence={"samples": seen.samples, "batch_size": seen.size},
        )
