"""``SANITY_WATCHDOG=1 python train.py``: Lightning asks this module for callbacks of every Trainer that it makes.

Everybody who has the package installed loads it, so it imports nothing and raises nothing.
"""

maker = None
"""Makes the callbacks instead, where tests are being watched."""


def callbacks():  # type: ignore[no-untyped-def]  # the annotation would need an import
    """A list with a ``SanityWatchdog`` where ``SANITY_WATCHDOG`` is on (not empty, ``0``, ``false``, ``no``, ``off``)."""
    try:
        if maker is not None:
            return maker()
        import os

        if os.environ.get("SANITY_WATCHDOG", "").strip().lower() in ("", "0", "false", "no", "off"):
            return []
        from .callback import SanityWatchdog

        watchdog = SanityWatchdog()
        watchdog.by_environment = True
        return [watchdog]
    except Exception as error:  # noqa: BLE001
        import sys

        print(f"watchdog: off: {error}", file=sys.stderr)
        return []
