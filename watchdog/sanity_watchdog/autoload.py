"""``SANITY_WATCHDOG=1 python train.py``: Lightning asks this module for callbacks of every Trainer that it makes.

Everybody who has the package installed loads it, so it imports nothing and raises nothing.
"""

maker: object = None
"""Called for the callbacks instead, where tests are being watched."""


def callbacks() -> list[object]:
    """A ``SanityWatchdog`` where the environment variable ``SANITY_WATCHDOG`` is on, else nothing.

    Off are the empty string, ``0``, ``false``, ``no`` and ``off``.
    """
    try:
        if callable(maker):
            return list(maker())
        import os
        import sys

        if os.environ.get("SANITY_WATCHDOG", "").strip().lower() in ("", "0", "false", "no", "off"):
            return []
        from .callback import SanityWatchdog

        try:
            watchdog = SanityWatchdog()
        except ValueError as error:  # who set that severity wanted runs to stop
            print(f'watchdog: {error}. Taken for fail_on="error": errors stop this run', file=sys.stderr)
            watchdog = SanityWatchdog(fail_on="error")
        watchdog.by_environment = True
        return [watchdog]
    except Exception as error:  # noqa: BLE001
        import sys

        print(f"watchdog: off, nothing is watched: {error}", file=sys.stderr)
        return []
