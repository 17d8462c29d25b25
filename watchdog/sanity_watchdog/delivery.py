"""The way from what observers hand over to the logger."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .evidence.base import Evidence
from .evidence.ranks import RankPrint
from .handlers import from_handler
from .logger import DiagnosticsLogger
from .observe.aside import unseen
from .observe.moment import Moment, Reader


class Delivery:
    """Takes evidence to the logger, and reads what was asked of the device. Nothing in here raises.

    Args:
        logger: who judges.
        keep: who takes what one rank shows to the others.

    Attributes:
        waiting: moments whose numbers are on their way to the host.
    """

    def __init__(self, logger: DiagnosticsLogger, keep: Callable[[RankPrint], None]) -> None:
        self.waiting: deque[Moment] = deque()
        self._logger = logger
        self._keep = keep

    def guard(self, what: str, action: Callable[[], Any], step: int = 0) -> Any:
        """The action's result; None where it raises, which the logger is told as a fault of ``what``."""
        try:
            with unseen():
                return action()
        except Exception as error:
            if from_handler(error):
                raise
            self._logger.own_fault(what, error, step)
            return None

    def send(self, at: Moment) -> None:
        """A step is over: what was asked for is sent to the host."""
        if at.readers:
            self.guard("the transfer to the host", at.packet.send, at.step)
            self.waiting.append(at)

    def settle(self, at: Moment, read: bool = False) -> None:
        """A moment is over: its evidence is judged, and what was asked for is read where that may be."""
        if at.evidence:
            evidence, at.evidence = at.evidence, []
            for seen in evidence:
                self.guard("the logger", partial(self._logger.take, seen), at.step)
        if (at.sync or read) and at.readers:
            self._deliver(at)
        self._logger.flush(at.step)

    def drain(self, only_arrived: bool = False) -> None:
        """Read and judge what is waiting."""
        while self.waiting:
            if only_arrived and not self.waiting[0].packet.arrived():
                return
            at = self.waiting.popleft()
            self._deliver(at)
            self.settle(at)

    def _deliver(self, at: Moment) -> None:
        packet, readers = at.renew()
        values: list[Mapping[str, Any]] | None = self.guard("the transfer to the host", packet.read, at.step)
        for reader, one in zip(readers, values or (), strict=False):
            name = f"reader {getattr(reader, '__qualname__', 'partial')}"
            for seen in self.guard(name, partial(_evidence, reader, one), at.step) or ():
                if isinstance(seen, RankPrint):
                    self._keep(seen)
                else:
                    self.guard("the logger", partial(self._logger.take, seen), at.step)


def _evidence(reader: Reader, values: Mapping[str, Any]) -> tuple[Evidence, ...]:
    return tuple(reader(values) or ())
