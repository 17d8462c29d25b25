"""The watchdog as the corpus runners call it."""

from sanity_watchdog import SanityWatchdog


def factory(target: str | None = None) -> SanityWatchdog:
    """A watchdog that never stops the run; ``target`` is the accelerator that the run is meant for."""
    return SanityWatchdog(fail_on=None, targets=(target,) if target else ())


def alerts(callback: SanityWatchdog) -> list[tuple[str, str, str, int]]:
    """Ranked alerts as ``(code, severity, message, step)``."""
    return [(a.code, a.severity.name.lower(), a.message, a.step) for a in callback.alerts]
