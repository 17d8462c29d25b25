"""Units of layers that never fire, or never leave the flat ends of their activation."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class SilentLayer:
    """One layer.

    Attributes:
        name: its bias, by which its units were told.
        silent: units without any gradient in the whole window.
        units: all of them.
        bare: a way from the layer to the loss has no activation, so none can have silenced it.
    """

    name: str
    silent: int
    units: int
    bare: bool = False

    @property
    def share(self) -> float:
        """Silent share."""
        return self.silent / self.units


@dataclass(frozen=True, kw_only=True)
class SilentUnits(Evidence):
    """Units whose bias and weights got no gradient in any sample of a window.

    Attributes:
        layers: layers with silent units, worst first.
        samples: samples of the window.
        measured: layers looked at.
        largest: largest gradient of all parameters of the optimizer in the last sample, NaN where it was not measured.
        faintest: the smallest, above 0, of the largest gradients of the layers' biases there, NaN where not measured.
        loss: the loss of that sample, NaN where it was not seen.
        head: largest weight of the last matrix there, NaN where it was not measured.
        waits: does the step ask for its number or the epoch's, so that layers may join in later?
    """

    layers: tuple[SilentLayer, ...]
    samples: int
    measured: int
    largest: float = math.nan
    faintest: float = math.nan
    loss: float = math.nan
    head: float = math.nan
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class SaturatedUnits(Evidence):
    """Outputs of bounded activations in one step.

    Attributes:
        layers: ``(module or place, class or function, share of outputs at the flat ends)``, worst first.
    """

    layers: tuple[tuple[str, str, float], ...]
