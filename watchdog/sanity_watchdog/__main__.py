"""``python -m sanity_watchdog``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
