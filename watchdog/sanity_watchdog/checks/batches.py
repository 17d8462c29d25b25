"""How batches follow each other: the order of labels, repetition, the size of the last one."""

import math
from collections import Counter

from ..alerts import Severity, number
from ..evidence.data import LabelOrder, LastBatch, MadeTargets, Repeats, StoredData
from .check import Findings, Skip, check

CHANCE = 1e-6
"""Probability with which a shuffled loader may be accused of being sorted."""
UNCHANGING = 256
"""Equal labels in a row, from a loader that does not shuffle, that are taken for a sorted beginning: a class of 99 %
gives so many with a probability of 8 %, one of 97 % with 0.04 %."""
UNCHANGING_BATCHES, FEWEST_SINGLE = 8, 4
EPOCH = 1_000
"""Labels of a whole epoch that all are equal. A dataset with one other label in a thousand gives so many in 37 % of all
draws of that size; then nothing else can be learned either."""
MADE = 12
"""Samples, of the first 90 optimizer steps at least, in which all targets that the step makes are one constant."""
FEW = 16
"""Distinct values below which equal fingerprints may be chance."""
ROUNDING = 1e-6
"""Shift of stored values below which only their factor was meant."""
REPEATED = 0.5
"""Share of the batches after the first that must be repetitions of an earlier one of the same epoch."""


@check("WD110", "one-class-batches", Severity.WARNING, LabelOrder)
def one_class_batches(seen: LabelOrder) -> Findings:
    """Successive batches hold one class each: the data are sorted by label and not shuffled.

    **What it sees.** Smallest and largest label of the last batches, read from the labels that a loss call got. Let m_c
    of n batches hold only class c. If batches were random, the probability of such a series would be at most
    (d + 1)^n · Π (m_c / m)^(B m_c) for d classes and batches of B; below 10⁻⁶ it alerts. Where the loader does not
    shuffle, 256 equal labels in a row are enough; where it does, a thousand that are a whole epoch. Also an expanded
    view of one label as the target of the whole batch; and targets made in the step, of nothing of the batch, that are
    one constant in the first 12 samples, where nothing else is minimised and the last layer has a bias; in manual
    optimisation those of one of several players, such as a discriminator that is told the same of real and made.

    **Why it matters.** The model forgets the other classes in each batch and swings from one to the next; BatchNorm
    learns the statistics of one class.

    **How to fix.** Shuffle; for a stream shuffle its files and keep a shuffle buffer::

        DataLoader(data, 64)                  # before: in the order of the files, class by class
        DataLoader(data, 64, shuffle=True)    # after

    **When to ignore.** Where batches are homogeneous on purpose, such as one speaker or one task per batch.

    **Limits.** Needs a loss that gets class labels of the batch itself. A stream that is sorted in longer runs than
    what was seen stays unknown until the class changes.

    **Sources.** The bound is the maximum likelihood of the series, times the number of ways to place its classes.
    """
    if not seen.batches:
        yield Skip("no class labels of the batch reached a loss")
        return
    if isinstance(seen, MadeTargets):
        yield from _made(seen)
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
    if len(single) >= FEWEST_SINGLE and against > ways - math.log(CHANCE):
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
    elif len(single) == len(seen.batches) >= seen.per_epoch and len(kinds) == 1 < seen.classes and labels >= EPOCH:
        text = f"all {labels:,} labels of an epoch are {number(single[0][1])}"
        look = "look at how labels are made, and at what the sampler or the subset draws"
        yield one_class_batches.alert(seen, text, hint=look, subjects=(seen.path,), evidence=facts)


def _made(seen: MadeTargets) -> Findings:
    size, low, high = seen.batches[-1]
    labels = sum(size for size, _, _ in seen.batches)
    if seen.repeated and low != high:
        text = f"one label of {seen.path} is the target of all {size} samples of the batch"
        hint = "give the loss the labels themselves, not an expanded view of one"
    elif not seen.repeated and len(seen.batches) >= MADE and {b[1:] for b in seen.batches} == {(low, low)}:
        text = f"all {labels:,} targets of {len(seen.batches)} batches are {number(low)}, made in the step"
        hint = (
            "give the loss the labels of the batch, or negatives beside the positives: a bias answers one target alone"
        )
    else:
        return
    facts: dict[str, str | int | float | bool | None] = {"batches": len(seen.batches), "low": low, "high": high}
    yield one_class_batches.alert(seen, text, hint=hint, subjects=(seen.path,), where=seen.where, evidence=facts)


@check("WD124", "repeated-batch", Severity.WARNING, Repeats, implied_by=("WD122",))
def repeated_batch(seen: Repeats) -> Findings:
    """The same batch comes again within an epoch, or workers or steps draw the same random numbers.

    **What it sees.** Up to 256 values of each of the largest tensors of the first 16 batches, compared within one
    epoch. And the attributes of the data set: a random generator that is kept there and used while loading is copied
    into every worker. And the state of the global generator after six sampled steps of two epochs, where the first
    one has seeded it and drawn numbers, and before the steps, where loading has set it to one state each time. Also the
    state of a generator from which the step draws numbers for each sample that go into its loss.

    **Why it matters.** A model trained on one batch memorises it. Workers that draw the same numbers give the same
    augmentation to different samples: less variety than believed, and nothing shows it.

    **How to fix.** Seed a stream once, not per shard; give each worker its part of a stream
    (``torch.utils.data.get_worker_info()``). Do not keep a generator on the data set, or seed it per worker: ::

        def seed_worker(i):
            torch.utils.data.get_worker_info().dataset.rng = numpy.random.default_rng(torch.initial_seed())

    **When to ignore.** Where one batch is repeated on purpose, as in a test of overfitting. ``overfit_batches`` and
    data sets of a few batches are quiet, since they repeat by the epoch.

    **Limits.** Periods beyond 8 batches are not found. A generator that the data set re-seeds itself in each worker
    cannot be told from one that it does not. Seeding inside of workers, and of NumPy's generator, is not seen.

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
    elif seen.reseeded:
        yield repeated_batch.alert(
            seen,
            f"the step seeds the generator: the same random numbers in all {seen.alike} steps looked at",
            hint="seed once before the fit (seed_everything); in the step use a torch.Generator of its own",
            where=seen.reseeded,
            evidence={"alike": seen.alike},
        )
    elif seen.own:
        yield repeated_batch.alert(
            seen,
            f"the step seeds a torch.Generator: it drew the same random numbers in all {seen.alike} steps looked at",
            hint="make and seed the generator once, in __init__ or setup, not in the step",
            where=seen.own,
            evidence={"alike": seen.alike},
        )
    elif seen.loading:
        yield repeated_batch.alert(
            seen,
            f"loading seeds the generator: all {seen.alike} batches looked at drew the same random numbers",
            hint="seed once before the fit, not per item, batch or epoch; seed by the index what a sample shall keep",
            evidence={"alike": seen.alike},
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

    **How to fix.** Drop the last batch, or choose another batch size::

        DataLoader(data, 64, shuffle=True)                    # before: 1,793 samples leave one
        DataLoader(data, 64, shuffle=True, drop_last=True)    # after

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


@check("WD127", "rewritten-data", Severity.WARNING, StoredData)
def rewritten_data(seen: StoredData) -> Findings:
    """Loading a sample changes it where it is kept: each epoch sees other data.

    **What it sees.** Some values of the arrays that a data set keeps in memory, before the first epoch and after the
    first and the second. It alerts when in both epochs the samples changed by the same factor and shift (or by the
    same factor, and each by a shift of its own): as a normalisation does that is done in place. Or one value, such as
    that of a mask, replaced different ones here and there in the samples, in both epochs, and nothing else changed.

    **Why it matters.** The first epoch is right, the second one normalises what is normalised already, and so on:
    inputs drift towards zero or away, and validation on a data set of its own sees something else. Masks that stay
    add up until nothing is left.

    **How to fix.** Make a new array, or normalise all samples once::

        x = self.images[i]; x -= self.mean          # before: a view, and an operation in place
        x = self.images[i] - self.mean              # after

    **When to ignore.** Where the data are meant to change from epoch to epoch.

    **Limits.** Tables of two and more values a sample, lists of samples of one size or of records of such (an image
    and its boxes), numbers in this process: what persistent workers do to their copies is not seen, and what is
    changed as a whole between two epochs, such as noise that fades, is no loading. Changes that differ from sample to
    sample are left alone: caches, replay buffers, and random ones. Arrays are looked for in the data set's attributes
    and among the variables that its ``__getitem__`` names.

    **Sources.** NumPy: basic indexing makes views, and ``a -= b`` writes to ``a``.
    """
    if seen.paths:
        yield rewritten_data.alert(
            seen,
            _what_loading_does(seen.factor, seen.shift),
            hint="in __getitem__ write to a copy of the stored one"
            if seen.factor == 0
            else "in __getitem__ make a new array (x = x - mean), do not write to the stored one (x -= mean)",
            subjects=seen.paths,
            evidence={"factor": seen.factor, "shift": seen.shift, "arrays": seen.arrays},
        )


def _what_loading_does(factor: float, shift: float) -> str:
    if factor == 0:
        return f"each epoch writes {number(shift)} over more of what is stored"
    added = "to each sample a number of its own" if math.isnan(shift) else number(shift * (abs(shift) > ROUNDING))
    return f"each epoch multiplies what is stored by {number(factor)} and adds {added}"
