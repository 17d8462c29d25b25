"""Shapes of the training batches, for targets that compile a graph for each."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ..evidence.portability import BatchShapes
from ..portability.targets import STATIC
from .batches import elements
from .moment import Moment
from .observer import Observer
from .operators import aims
from .run import Run

FIRST = 16
"""Batches before the first look; the next ones are at twice as many each time."""
KEPT = 1024
"""Signatures that are told apart."""
Signature = tuple[tuple[str, tuple[int, ...], str], ...]


class ShapeWatch(Observer):
    """Counts the signatures of batches; only where a target compiles."""

    codes = ("WD409",)

    def __init__(self) -> None:
        self._targets: tuple[str, ...] = ()
        self._seen: Counter[Signature] = Counter()
        self._look = FIRST

    def start(self, run: Run, at: Moment) -> None:
        self._targets = tuple(t for t in aims(run) if t in STATIC)
        if self._targets:
            ragged, size = next((r for r in map(ragged_batch, run.loaders) if r[0]), (0, 0))
            at.emit(BatchShapes(targets=self._targets, ragged=ragged, size=size, **at.tags()))

    def batch(self, at: Moment, batch: Any) -> None:
        if not self._targets:
            return
        signature = tuple((e.path, tuple(e.tensor.shape), str(e.tensor.dtype)) for e in elements(batch))
        if signature in self._seen or len(self._seen) < KEPT:
            self._seen[signature] += 1
        if self._seen.total() >= self._look:
            self._look *= 2
            self._tell(at)

    def end(self, at: Moment) -> None:
        self._tell(at)

    def failed(self, at: Moment, error: BaseException) -> None:
        self._tell(at)

    def _tell(self, at: Moment) -> None:
        if self._seen:
            at.emit(
                BatchShapes(
                    targets=self._targets,
                    batches=self._seen.total(),
                    distinct=len(self._seen),
                    once=sum(n == 1 for n in self._seen.values()),
                    examples=_examples(self._seen),
                    **at.tags(),
                )
            )


def _examples(signatures: Iterable[Signature]) -> tuple[str, ...]:
    """Shapes of the first tensor that varies, in order of appearance."""
    for leaf in zip(*signatures, strict=False):
        shapes = list(dict.fromkeys(f"{path} {shape}" for path, shape, _ in leaf))
        if len(shapes) > 1:
            return tuple(shapes[:4])
    return ()


def ragged_batch(loader: Any) -> tuple[int, int]:
    """``(samples in the last batch, samples in the others)`` where the last one is smaller, else ``(0, 0)``.

    From lengths alone: nothing is iterated, which would move the random generator.
    """
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(sampler, "batch_size", None)
    if not isinstance(size, int) or size < 1 or getattr(sampler, "drop_last", True):
        return 0, 0
    try:
        count = len(loader.sampler)
    except (TypeError, AttributeError, NotImplementedError):
        return 0, 0
    return (count % size, size) if count % size and count > size else (0, 0)
