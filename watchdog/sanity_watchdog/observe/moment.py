"""A moment of a run, as observers get it, and the way back from measurement to judgement."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from ..evidence.base import Evidence
from .calls import Trace
from .packet import Packet
from .run import Run

Reader: TypeAlias = Callable[[Mapping[str, Tensor]], Iterable[Evidence] | None]


@dataclass
class Moment:
    """Where the run is, and what observers hand over there.

    Attributes:
        run: what is fixed; before ``Observer.start`` (in the sanity check) without the training loaders.
        step: optimizer step on the x axis of the user's own curves.
        epoch: current epoch.
        batch: training batches of this fit so far, from 0.
        attempt: optimizer steps attempted so far, of any optimizer.
        idle: batches without an attempt before this one, where that is long for a run that has stepped; else 0.
        sampled: may device work be queued at this moment?
        sync: may the device be read at this moment? Only before the first optimizer step and in the first
            validation batch.
        stage: ``train`` or ``validation``.
        data: the batch while its step runs.
        trace: what the loss-call observer recorded in this step, for observers after it.
    """

    run: Run
    step: int = 0
    epoch: int = 0
    batch: int = 0
    attempt: int = 0
    idle: int = 0
    sampled: bool = False
    sync: bool = False
    stage: str = "train"
    data: Any = None
    trace: Trace | None = None
    packet: Packet = field(default_factory=Packet)
    readers: list[Reader] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)

    def emit(self, evidence: Evidence) -> None:
        """Hand over evidence that is already on the host; it is judged at the end of the current hook."""
        self.evidence.append(evidence)

    def ask(self, tensors: Mapping[str, Tensor], then: Reader) -> None:
        """Queue small tensors of one device for the sample's single transfer.

        ``then`` is called with them on the CPU when they have arrived (in the first step at the end of the current
        hook, else at the next step) and returns evidence to judge.
        """
        self.packet.put(tensors)
        self.readers.append(then)

    def renew(self) -> tuple[Packet, list[Reader]]:
        """Take what was asked for, and start afresh."""
        taken = self.packet, self.readers
        self.packet, self.readers = Packet(), []
        return taken

    def tags(self) -> dict[str, Any]:
        """Keyword arguments that every piece of evidence takes from its moment."""
        return {"step": self.step, "epoch": self.epoch, "stage": self.stage}
