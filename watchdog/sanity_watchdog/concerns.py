"""Callbacks for single concerns: the watchdog with another default selection, nothing more."""

from .callback import SanityWatchdog


class LossWatch(SanityWatchdog):
    """The first loss, labels, data and outputs (``WD1xx``) only."""

    selection = ("WD1",)


class GradientWatch(SanityWatchdog):
    """Gradients and number formats (``WD2xx``) only."""

    selection = ("WD2",)


class ParameterWatch(SanityWatchdog):
    """Parameters and optimizers (``WD3xx``) only."""

    selection = ("WD3",)


class CompatibilityWatch(SanityWatchdog):
    """Device, dtype and portability (``WD4xx``) only."""

    selection = ("WD4",)
