"""A watchdog for PyTorch Lightning training runs: ``Trainer(callbacks=[SanityWatchdog()])``.

Importing this package imports neither torch nor Lightning; each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .alerts import Alert, Severity
    from .callback import SanityWatchdog
    from .concerns import CompatibilityWatch, GradientWatch, LossWatch, ParameterWatch
    from .policy import SanityCheckFailed
    from .portability.placement import check_placement
    from .testing import assert_trains

_HOMES = {
    "Alert": "alerts",
    "Severity": "alerts",
    "SanityCheckFailed": "policy",
    "SanityWatchdog": "callback",
    "LossWatch": "concerns",
    "GradientWatch": "concerns",
    "ParameterWatch": "concerns",
    "CompatibilityWatch": "concerns",
    "assert_trains": "testing",
    "check_placement": "portability.placement",
}
__all__ = [
    "Alert",
    "CompatibilityWatch",
    "GradientWatch",
    "LossWatch",
    "ParameterWatch",
    "SanityCheckFailed",
    "SanityWatchdog",
    "Severity",
    "assert_trains",
    "check_placement",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
