"""Readings that no check judges: they are shown, plotted, or say why something could not be seen."""

from collections.abc import Mapping
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class Vital(Evidence):
    """A fragment of the closing line, such as ``first loss 2.312 (ln 10 = 2.303)``; a later one of the same key wins.

    Attributes:
        key: ``loss``, ``runtime``, ``parameters`` or ``gradients``; fragments are printed in this order.
        text: what the person reads.
    """

    key: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Scalars(Evidence):
    """Points of curves under ``watchdog/`` in TensorBoard, such as ``first_loss`` or ``loss_scale``."""

    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Layers(Evidence):
    """One number per layer at one sample, stored as one vector.

    Attributes:
        quantity: what was measured, such as ``log2_largest_gradient``.
        names: layers, in registration order.
        values: one per name; NaN where it was not measured.
    """

    quantity: str
    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Histogram(Evidence):
    """A ready-made histogram, written only while an alert is about it.

    Attributes:
        tag: name of the plot; says what the limits are.
        edges: right edge of each bucket.
        counts: elements per bucket.
    """

    tag: str
    edges: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Unseen(Evidence):
    """Why checks could not judge, for those that come to no verdict otherwise.

    Attributes:
        codes: codes or prefixes of the checks.
        reason: few words, such as ``compiled step``.
    """

    codes: tuple[str, ...]
    reason: str
