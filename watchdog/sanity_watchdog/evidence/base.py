"""What every piece of evidence says of its moment."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Base of all evidence.

    Attributes:
        step: optimizer step that the moment belongs to, on the x axis of the user's own curves.
        epoch: epoch of the moment.
        stage: ``train`` or ``validation``.
    """

    step: int = 0
    epoch: int = 0
    stage: str = "train"
