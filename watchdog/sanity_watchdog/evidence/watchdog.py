"""What the watchdog knows about itself."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class OwnFault(Evidence):
    """Something of the watchdog's own raised.

    Attributes:
        what: the check, observer or sink.
        error: type and message of the exception.
        traceback: the whole traceback.
    """

    what: str
    error: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Closing(Evidence):
    """The fit is over.

    Attributes:
        judged: number of checks that came to a verdict about a training step.
        batches: training batches seen.
        attempts: optimizer steps attempted.
        raised: class of the exception that ended the run, empty where none did.
    """

    judged: int
    batches: int
    attempts: int
    raised: str = ""
