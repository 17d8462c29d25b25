"""Training runs in tests: a watchdog that leaves no trace, and a smoke test in one line."""

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from .alerts import Alert, Severity, render
from .callback import SanityWatchdog
from .summary import Sink


class SilentWatchdog(SanityWatchdog):
    """Keeps its alerts in memory: a test's folders and output stay as they are."""

    def _own_sinks(self) -> Sequence[Sink]:
        return ()


def assert_trains(
    module: Any,
    data: Any,
    steps: int = 20,
    *,
    fail_on: str = "warning",
    select: Sequence[str] = (),
    ignore: Sequence[str] | Mapping[str, str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **trainer: Any,
) -> tuple[Alert, ...]:
    """Train ``module`` for ``steps`` optimizer steps and assert that nothing is silently wrong with it.

    Args:
        module: the LightningModule.
        data: what ``Trainer.fit`` takes: a dataloader, several, or a LightningDataModule.
        steps: optimizer steps.
        fail_on: severity from which an alert fails the assertion.
        select: checks to run, as in ``SanityWatchdog``.
        ignore: alerts to silence, as in ``SanityWatchdog``.
        options: options of single checks, as in ``SanityWatchdog``.
        **trainer: further arguments of the Trainer, such as ``precision``; one process on the CPU unless they say
            otherwise. Nothing is written.

    Returns:
        The alerts below ``fail_on``.

    Raises:
        AssertionError: with the alerts as its text; also where nothing was judged.
    """
    threshold = Severity.parse(fail_on)
    watchdog = SilentWatchdog(fail_on=None, select=select, ignore=ignore, options=options)
    with tempfile.TemporaryDirectory() as folder:
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        defaults = {"accelerator": "cpu", "devices": 1, "default_root_dir": folder, "max_steps": steps, **quiet}
        callbacks = [*trainer.pop("callbacks", ()), watchdog]
        namespace = _lightning_of(module)
        fit = {"datamodule": data} if isinstance(data, namespace.LightningDataModule) else {"train_dataloaders": data}
        namespace.Trainer(**{**defaults, **trainer}, callbacks=callbacks).fit(module, **fit)
    alerts = watchdog.alerts
    if failing := [a for a in alerts if a.severity >= threshold]:
        raise AssertionError(report(failing))
    if watchdog.verdict == "incomplete":
        found = [*map(render, alerts), *watchdog.summary.broken.values()]
        raise AssertionError("\n\n".join(["nothing can be said about this training run", *found]))
    return alerts


def _lightning_of(module: Any) -> Any:
    """The namespace, ``lightning.pytorch`` or ``pytorch_lightning``, whose Trainer takes this module."""
    if any(base.__module__.startswith("pytorch_lightning.") for base in type(module).__mro__):
        import pytorch_lightning

        return pytorch_lightning
    import lightning.pytorch

    return lightning.pytorch


def report(alerts: Sequence[Alert], run: str = "this training run") -> str:
    """Alerts as the text of a failed test, the likeliest root cause first; runners' lists show little but its start."""
    more = f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""
    first = f"{alerts[0].code} {alerts[0].name}{more}: something is wrong with {run}"
    return "\n\n".join([first, *map(render, alerts)])
