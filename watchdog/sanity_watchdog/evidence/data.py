"""What batches hold: non-finite values, information, scale, repetition, sizes and the order of labels."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Finiteness(Evidence):
    """The first batch since the last sample with NaN or infinities, or that there was none.

    Attributes:
        batch: number of the training batch in this fit, from 0.
        path: the tensor, such as ``batch[0]``.
        value: ``NaN``, ``inf``, or ``-inf``; empty where all were finite.
        index: place of the first such value as far as it is known, sample first.
        loss_finite: was the loss of this batch finite? None where no loss was seen.
    """

    batch: int = -1
    path: str = ""
    value: str = ""
    index: tuple[int, ...] = ()
    loss_finite: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A tensor with data of the batch, as it entered the first weights.

    Attributes:
        path: the batch's tensor that it is, empty where it was computed from one.
        operation: the function that took it, such as ``linear``, ``conv2d``, ``lstm``, ``batch_norm``, ``embedding``.
        shape: its shape, samples first.
        low, high, mean, deviation: of its finite values.
        zeros: share of exact zeros. whole: share of whole numbers. twice: of such that are after a product with 255².
        equal_rows: are all samples the same?
        feature_high, feature_median: root mean square of the largest and of the median feature, NaN where it has none.
        feature: number of the largest feature.
        where: the user's line. normalised: does a normalisation follow at once?
    """

    path: str
    operation: str
    shape: tuple[int, ...]
    low: float
    high: float
    mean: float
    deviation: float
    zeros: float
    whole: float
    equal_rows: bool
    twice: float = 0.0
    feature_high: float = float("nan")
    feature_median: float = float("nan")
    feature: int = -1
    where: str = ""
    normalised: bool = False


@dataclass(frozen=True, kw_only=True)
class FirstInputs(Evidence):
    """Everything of the first batch that entered the model.

    Attributes:
        entries: what entered, in order. unread: layers whose input could not be read.
        drawn: did the step draw numbers of its own?
        generates: does a loss want several real numbers of each sample that are the batch's own?
    """

    entries: tuple[Entry, ...]
    unread: tuple[str, ...] = ()
    drawn: bool = False
    generates: bool = False


@dataclass(frozen=True, kw_only=True)
class Repeats(Evidence):
    """Which of some batches held the same values, and what makes loading repeat itself.

    Attributes:
        batches: number, epoch and kind of each batch looked at; equal kinds, equal values.
        variety: distinct values on which the comparison rests, of the poorest batch.
        per_epoch: batches in an epoch, ``inf`` for a stream.
        workers: processes that load. streaming: is the data set an iterable one?
        generators: attributes of the data set that hold a random generator and are used while loading, where no
            function of the user's seeds the workers.
        reseeded: line that draws after each step has set the global generator to the same state; empty for none.
        alike: steps at whose end it was in that state, or batches that were handed over in one.
        loading: is it what comes before the step, as loading a sample, that sets it?
        own: line at which a generator of the user's was in the same state in each step.
    """

    batches: tuple[tuple[int, int, int], ...] = ()
    variety: int = 0
    per_epoch: float = float("inf")
    workers: int = 0
    streaming: bool = False
    generators: tuple[str, ...] = ()
    reseeded: str = ""
    alike: int = 0
    loading: bool = False
    own: str = ""


@dataclass(frozen=True, kw_only=True)
class LastBatch(Evidence):
    """A last batch of one sample, and layers that need more.

    Attributes:
        samples: samples per epoch of this process. size: batch size.
        layers: BatchNorm layers that get one value per channel from one sample; subjects by name.
    """

    samples: int
    size: int
    layers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LabelOrder(Evidence):
    """Smallest and largest label of consecutive batches.

    Attributes:
        path: the labels. batches: size, smallest and largest label of each batch, oldest first.
        shuffled: does the loader shuffle? None where unknown. classes: outputs of the model, 0 where unknown.
        per_epoch: batches of an epoch.
    """

    path: str
    batches: tuple[tuple[int, float, float], ...]
    shuffled: bool | None = None
    classes: int = 0
    per_epoch: float = math.inf


@dataclass(frozen=True, kw_only=True)
class MadeTargets(LabelOrder):
    """Targets that the step makes for its only loss call, whose scores have a trainable bias.

    Attributes:
        path: the loss function; the labels of the batch where one of them is ``repeated`` for all samples.
        batches: size, smallest and largest target of each sampled batch; of all labels of the batch if ``repeated``.
        where: the user's line.
    """

    where: str = ""
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredData(Evidence):
    """What the data sets keep in memory, after two epochs.

    Attributes:
        paths: arrays all of whose changed samples changed in both epochs by the same factor and shift per column.
        factor, shift: those of the first of them, medians over its columns; a NaN for shifts that differ by sample.
            Factor 0: in both epochs the shift has replaced other values here and there.
        arrays: arrays looked at.
    """

    paths: tuple[str, ...] = ()
    factor: float = 1.0
    shift: float = 0.0
    arrays: int = 0
