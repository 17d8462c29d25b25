"""When an alert stops a run: the only thing of the watchdog's that ever does."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .alerts import Alert, Severity, counted

FALSE = ("", "0", "false", "no", "off")


def truthy(text: str | None) -> bool:
    """Is an environment variable switched on? ``0``, ``false``, ``no``, ``off`` and the empty string are off."""
    return text is not None and text.strip().lower() not in FALSE


class SanityCheckFailed(Exception):  # noqa: N818
    """The policy stopped the run. Picklable.

    Attributes:
        alerts: all open alerts, ranked; those that reach the policy's severity come first.
        reason: the setting that made them stop the run.
    """

    def __init__(self, alerts: tuple[Alert, ...] = (), reason: str = "") -> None:
        super().__init__(alerts, reason)
        self.alerts = alerts
        self.reason = reason

    def __str__(self) -> str:
        texts = [str(alert) for alert in reversed(self.alerts)]
        worst = f": {self.alerts[0].code} {self.alerts[0].name}" if self.alerts else ""
        return "\n".join([f"{counted(len(texts), 'alert')}, stopped by {self.reason}{worst}", *texts])


@dataclass(frozen=True)
class Policy:
    """Which severity stops a run, and who said so.

    Attributes:
        threshold: alerts of this severity or worse stop the run; None for never.
        reason: the setting in words, as the exception names it.
        notice: a line for the console when nobody asked explicitly.
    """

    threshold: Severity | None = None
    reason: str = "fail_on=None"
    notice: str = ""

    @classmethod
    def resolve(cls, fail_on: str | None, environ: Mapping[str, str] = os.environ) -> "Policy":
        """Explicit argument first, then ``SANITY_WATCHDOG_FAIL_ON``, then errors where ``CI`` is set.

        Raises:
            ValueError: for an unknown severity; lists the valid ones.
        """
        source = "fail_on"
        if fail_on == "auto" and environ.get("SANITY_WATCHDOG_FAIL_ON"):
            fail_on, source = environ["SANITY_WATCHDOG_FAIL_ON"], "SANITY_WATCHDOG_FAIL_ON"
        if fail_on is None or (source != "fail_on" and fail_on.lower() in (*FALSE, "none", "never")):
            return cls(None, f"{source}=None")
        if fail_on == "auto":
            if not truthy(environ.get("CI")):
                return cls()
            notice = "CI detected: errors stop this run; fail_on=None turns that off"
            return cls(Severity.ERROR, 'fail_on="auto" and CI being set', notice)
        try:
            return cls(Severity.parse(fail_on), f'{source}="{fail_on}"')
        except ValueError as error:
            raise ValueError(f"{source}: {error}, auto or None") from None

    def reached(self, alerts: Iterable[Alert]) -> bool:
        """Does one of these alerts stop the run?"""
        return self.threshold is not None and any(a.severity >= self.threshold for a in alerts)

    def stop(self, alerts: tuple[Alert, ...]) -> SanityCheckFailed:
        """The exception that stops the run."""
        assert self.threshold is not None
        first = [a for a in alerts if a.severity >= self.threshold]
        return SanityCheckFailed((*first, *(a for a in alerts if a not in first)), self.reason)
