"""What TensorBoard's entry point loads. It imports next to nothing and lets no error through: TensorBoard would not
start."""

import logging
from typing import Any

from tensorboard.plugins import base_plugin

RECORDS = "watchdog"
"""Plugin name of the exact records, and of the tab."""
LAYERS = "watchdog_layers"
"""Plugin name of the layer vectors."""
VECTORS = 1000
"""Layer vectors kept per tag; a run of a million samples writes fewer."""


class WatchdogLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Makes the tab, or no tab where that fails."""

    def fix_flags(self, flags: Any) -> None:
        """Keep every record: TensorBoard would draw ten of them at random. What the user asks for wins."""
        samples = getattr(flags, "samples_per_plugin", None)
        if isinstance(samples, dict):
            samples.setdefault(RECORDS, 0)
            samples.setdefault(LAYERS, VECTORS)

    def load(self, context: Any) -> Any:
        """The tab; None where it cannot be made."""
        try:
            from .plugin import WatchdogTab

            return WatchdogTab(context)
        except Exception:
            logging.getLogger(__name__).warning("the Watchdog tab is off: it cannot be loaded", exc_info=True)
            return None
