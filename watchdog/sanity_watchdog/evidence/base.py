"""What every piece of evidence says of its moment."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Base of all evidence.

    Attributes:
        step: optimizer step that the moment belongs to, on the x axis of the user's own curves.
        epoch: epoch of the moment.
        stage: ``start`` (before the first batch), ``train`` or ``validation``.
    """

    step: int = 0
    epoch: int = 0
    stage: str = "train"

    @property
    def scope(self) -> str:
        """What an alert about this may be cleared by: a later quiet judgement of evidence with the same scope.

        Equals the second part of the alert's key: the user's ``file:line`` where there is one, else the stage.
        """
        return self.stage
