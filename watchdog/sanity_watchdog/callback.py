"""The Lightning callback. With ``steps.py`` and ``adapter.py`` the only place that knows a Trainer."""

import contextlib
import functools
import multiprocessing
import multiprocessing.util
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import adapter
from .alerts import Alert
from .checks import CHECKS
from .endings import failure, in_flight
from .guard import harmless
from .logger import DiagnosticsLogger
from .observe.losses import LossCalls
from .observe.registry import OBSERVERS
from .policy import SanityCheckFailed
from .settings import Settings
from .sinks import default_sinks
from .steps import LENT, Early, StepHooks
from .summary import Sink, Summary
from .watch import Watch
from .wrapping import Wrapping


class SanityWatchdog(StepHooks):
    """Watches a training run and tells what is silently wrong with it.

    Args:
        num_classes: number of classes k, only where no loss call can be read; the first loss is then judged
            against ln k.
        expected_loss: expected first loss in nats, only where no loss call can be read.
        select: codes, prefixes of codes or names of the checks to run; all where empty.
        ignore: the same, or ``"WD301:*.mask"`` to silence single subjects; a mapping adds a reason to each entry.
        options: options of single checks, such as ``{"WD101": {"tolerance": 0.3}}``.
        every_n_steps: later samples are pairs of optimizer steps this far apart; an odd prime sees every phase of an
            alternation. From 101 on, one process in a long run looks at every thirteenth pair only where steps are so
            short that all would take over 1 % of the time.
        targets: accelerators to judge portability for, besides the present one: ``cpu``, ``cuda``, ``mps``, ``tpu``,
            ``xla`` (a TPU by PyTorch/XLA), ``xpu``.
        fail_on: severity that stops the run: ``None``, ``"info"``, ``"warning"``, ``"error"``, or ``"auto"``: errors
            where the environment variable ``CI`` is set. ``SANITY_WATCHDOG_FAIL_ON`` overrides ``"auto"``.
        record: file or folder of ``watchdog.jsonl``; beside the logs by default (also ``SANITY_WATCHDOG_RECORD``).
        save_batches: save the first few batches whose loss is not finite or a spike in ``watchdog_batches/`` beside the
            record, with their places in the dataset where the sampler knows them. Costs one small transfer per batch.
        on_alert: called with each new alert.
        sinks: further places to write to.

    Raises:
        ValueError: for unknown codes, options, severities or targets; the message names valid ones.
        TypeError: for a value of the wrong kind.
    """

    selection: tuple[str, ...] = ()
    """What ``select`` is where it is not given."""

    by_environment: bool = False
    """Attached to every Trainer by ``SANITY_WATCHDOG`` or pytest: gives way to one that was given by hand."""

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        expected_loss: float | None = None,
        select: Sequence[str] = (),
        ignore: Sequence[str] | Mapping[str, str] = (),
        options: Mapping[str, Mapping[str, Any]] | None = None,
        every_n_steps: int = 101,
        targets: Sequence[str] = (),
        fail_on: str | None = "auto",
        record: str | os.PathLike[str] | None = None,
        save_batches: bool = False,
        on_alert: Callable[[Alert], None] | None = None,
        sinks: Sequence[Sink] | None = None,
    ) -> None:
        super().__init__()
        if on_alert is not None and not callable(on_alert):
            raise TypeError(f"on_alert must be callable with an alert, got {on_alert!r}")
        self.settings = Settings.make(
            select=select or self.selection,
            ignore=ignore,
            options=options,
            every_n_steps=every_n_steps,
            targets=targets,
            fail_on=fail_on,
            record=record,
            save_batches=save_batches,
            num_classes=num_classes,
            expected_loss=expected_loss,
        )
        self._on_alert = on_alert
        self._more_sinks = tuple(sinks or ())
        self._logger: DiagnosticsLogger | None = None
        self._leads = False
        self._fits = 0
        self._searches = False
        self._asked = ""
        self._batches = ""
        self._at_exit: multiprocessing.util.Finalize | None = None
        self._trainer: weakref.ref[Any] | None = None

    @property
    def state_dict(self) -> Callable[[], dict[str, Any]]:
        """The base class's empty one. Lightning looks it up while it makes a Trainer, which alone knows the precision
        that was asked for."""
        self._note_precision()
        return super().state_dict

    @harmless
    def _note_precision(self) -> None:
        asked = adapter.asked_precision()
        self._asked = self._asked if asked is None else asked

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Alerts of the current or last fit: ranked, merged, without what a root cause explains."""
        return self._logger.alerts if self._logger is not None else ()

    @property
    def verdict(self) -> str:
        """``pass``, ``warn``, ``fail``, or ``incomplete``: a check broke, nothing was judged, or the run raised."""
        if self._logger is None:
            return "incomplete"
        if self._logger.closed:
            return self._logger.summary.verdict
        trainer = self._trainer() if self._trainer is not None else None
        untold = getattr(trainer, "interrupted", False)  # another callback's ``on_exception`` has raised before ours
        return "incomplete" if untold and self._logger.verdict == "pass" else self._logger.verdict

    @property
    def summary(self) -> Summary:
        """What there is to say about the last fit, once it is over."""
        return self._logger.summary if self._logger is not None else Summary("incomplete")

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = dict.fromkeys(("_logger", "_watch", "_row", "_early", "_trainer", "_at_exit"))
        own |= {"_hooks": [], "_wrapped": Wrapping(), "_places": {}}
        others = {name: value for name, value in vars(self).items() if name not in LENT}
        present = {name: value for name, value in others.items() if self._places.get(name, self) is not value}
        return {**present, **own}

    # -- life of a fit

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            self._note_search(trainer)
        if stage != "fit" or self._searches:
            return
        everyone = [c for c in trainer.callbacks if isinstance(c, SanityWatchdog)]
        if not any(c is self for c in everyone):  # another callback hands its hooks on
            everyone.append(self)
        family = [c for c in everyone if not c.by_environment] or everyone[:1]
        if self not in family:
            self._leads = False
            return
        self._trainer = weakref.ref(trainer)
        settings = functools.reduce(Settings.joined, (c.settings for c in family))
        log_dir = trainer.log_dir  # a collective: every rank reads it, here and only here
        self._leads = family[0] is self  # the others hand their selection over
        if not self._leads:
            self._logger = family[0]._logger
            return
        self._begin(trainer, settings, log_dir, family)

    @harmless
    def _note_search(self, trainer: Any) -> None:
        self._searches = False
        self._searches = adapter.only_searches(trainer)

    def _own_sinks(self) -> Sequence[Sink]:
        return default_sinks()

    @harmless
    def _begin(self, trainer: Any, settings: Settings, log_dir: str | None, family: list["SanityWatchdog"]) -> None:
        self._end_watch()
        self._validated = self._lazy = False
        self._fits += 1
        info = adapter.info_of(trainer, settings, log_dir)
        self._batches = adapter.batches_path(info.record) if settings.save_batches else ""
        sinks = [*self._own_sinks(), *(s for c in family for s in c._more_sinks)]
        on_alert = [c._on_alert for c in family if c._on_alert is not None]

        def tell(alert: Alert) -> None:
            for one in on_alert:
                one(alert)

        self._logger = DiagnosticsLogger(settings, sinks, tell if on_alert else None)
        for other in family[1:]:
            other._logger = self._logger
        self._logger.open(info)
        if multiprocessing.parent_process() is not None:
            self._at_exit = multiprocessing.util.Finalize(None, self._forsaken, exitpriority=1)

    def _looking(self, trainer: Any, module: Any, complete: bool, early: Early | None = None) -> Watch | None:
        logger = self._logger
        if logger is None or logger.closed or not self._leads:
            return None
        run = adapter.describe(
            trainer, module, logger.settings, complete=complete, asked=self._asked, batches=self._batches
        )
        if self._lazy and run.world > 1:  # none may stop before the ranks know of each other
            return None
        if early is not None:
            run = replace(run, resumed=early[0].resumed)
        if self._watch is None:
            calls = LossCalls() if early is None else early[1]
            codes = [c.code for c in CHECKS if logger.settings.selected(c)]
            kinds = [o for o in OBSERVERS if any(code.startswith(o.codes) for code in codes)]
            chosen = [calls if o is LossCalls else o() for o in kinds if o is LossCalls or not self._lazy]
            self._early = (run, calls) if self._lazy else None
            self._watch = Watch(run, chosen, logger, self._fits)
        if complete and not self._watch.started:
            self._watch.start(run, adapter.logged_step(trainer), trainer.current_epoch)
        return self._watch

    @harmless
    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        if not adapter.has_lazy(pl_module):
            self._looking(trainer, pl_module, complete=False)

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._lazy = adapter.has_lazy(pl_module)
        if not self._lazy:
            self._attach(trainer, pl_module)

    # -- the end, one way or another

    @harmless
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._wake(trainer)
        if (watch := self._watch) is not None:
            watch.end()
            self._enforce(watch, "end")
            self._finish()

    @harmless
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._wrapped.undo()
        batch = adapter.batch_of(exception)
        self._wake(trainer, None if batch is None else adapter.logged_step(trainer), batch)
        stopped = isinstance(exception, SanityCheckFailed)
        self._give_back()
        if self._watch is not None and not stopped:
            self._watch.failed(exception)
        self._finish(stopped, failure(exception))

    @harmless
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._give_back()
        if stage == "fit":
            self._wake(trainer)
            self._finish()

    @harmless
    def _forsaken(self) -> None:
        """The process ends and no hook told of it, as in ranks that Lightning spawned or forked and that raise."""
        error = self._wrapped.raised or in_flight()
        if self._watch is not None:
            self._watch.failed(error)
        self._finish(raised=failure(error))

    def _finish(self, stopped: bool = False, raised: str = "") -> None:
        logger, watch = self._logger, self._watch
        if logger is not None and self._leads:
            reason = logger.settings.policy.reason if stopped else ""
            step, batches, attempts = (watch.now.step, watch.batches, watch.attempts) if watch else (0, 0, 0)
            logger.close(step, batches, attempts, reason, "" if stopped else raised)
        if self._at_exit is not None:
            self._at_exit.cancel()
            self._at_exit = None
        self._end_watch()

    def _end_watch(self) -> None:
        self._wrapped.undo()
        self._leave_row()
        for handle in self._hooks:
            handle.remove()
        self._hooks.clear()
        self._early = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _own_fault(self, hook: str, error: Exception) -> None:
        if self._logger is not None:
            with contextlib.suppress(Exception):
                self._logger.own_fault(f"hook {hook}", error)
