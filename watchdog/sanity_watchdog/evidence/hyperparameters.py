"""What the optimizers were told."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, slots=True)
class Group:
    """Settings of one parameter group; None where the optimizer has no such setting or it is kept on a device.

    Attributes:
        optimizer: number of the optimizer. index: number of the group in it. kind: the optimizer's class.
        parameters: number of parameters in the group.
        lr: learning rate now. peak: the largest it is known to take: the rate the schedule starts from, or ``lr``.
        weight_decay: as given. decoupled: is it applied to the weight itself, scaled by the rate alone?
        betas: decay of the averages of gradient and square. momentum, dampening, eps: as given.
        maximize: does it climb?
        factor: the most that a ``LambdaLR`` multiplies the rate of any group of the optimizer by; None where unknown.
    """

    optimizer: int
    index: int
    kind: str
    parameters: int
    lr: float | None = None
    peak: float | None = None
    weight_decay: float | None = None
    decoupled: bool = False
    betas: tuple[float, ...] = ()
    momentum: float | None = None
    dampening: float | None = None
    eps: float | None = None
    maximize: bool = False
    factor: float | None = None

    @property
    def place(self) -> str:
        """How the person finds it."""
        return f"optimizer {self.optimizer}" + (f", group {self.index}" if self.index else "")


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(Evidence):
    """Settings of all groups.

    Attributes:
        groups: one per parameter group.
        climbed: name of a loss function whose positive value a maximizing optimizer climbs; empty where unknown.
    """

    groups: tuple[Group, ...]
    climbed: str = ""
