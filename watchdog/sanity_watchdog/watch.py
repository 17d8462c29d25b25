"""One fit under observation: moments go to the observers, what they hand over to the logger."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch.optim import Optimizer

from .assembly import Assembly
from .delivery import Delivery
from .exchange import Exchange
from .handlers import from_handler
from .logger import DiagnosticsLogger
from .observe.aside import modes, unseen
from .observe.hooks import Hooks
from .observe.late_compile import compiled_code_unwatched
from .observe.moment import Moment
from .observe.observer import Observer
from .observe.row import Row
from .observe.run import Run
from .observe.sampling import EPOCHS, PATIENCE, SETTLED, Pace
from .policy import SanityCheckFailed


class Watch:
    """Drives the observers through one fit. Nothing in here raises, but for the policy.

    Args:
        run: what is known before the first step.
        observers: who looks.
        logger: who judges.
        fit: number of this fit in its process, the same on every rank.

    Attributes:
        resting: between samples of a settled run; of a step only what can be had for nothing is looked at.
    """

    def __init__(self, run: Run, observers: Iterable[Observer], logger: DiagnosticsLogger, fit: int = 0) -> None:
        self.run = run
        self.logger = logger
        self.fit = fit
        self.assembly: Assembly | None = None
        self.batches = 0
        self.attempts = 0
        self.started = False
        self.resting = False
        self.now = Moment(run=run, sync=True)
        self._steps_per_batch = 1
        self._batch_attempts = 0
        self._settled = False
        self._epochs = 0
        self._pace = Pace(run.every_n_steps, run.world > 1)
        self._hooks = Hooks(observers)
        self._delivery = Delivery(logger, lambda seen: self._with_ranks(lambda ranks: ranks.keep(seen)))

    # -- moments

    def start(self, run: Run, step: int, epoch: int) -> None:
        """The first training step is about to begin."""
        self.run = run
        self.started = True
        exchange = self._delivery.guard("the exchange between ranks", partial(Exchange.of_process_group, run, self.fit))
        self.assembly = None if exchange is None else Assembly(exchange, run, self.logger)
        self.now = Moment(run=run, step=step, epoch=epoch, sampled=True, sync=True)
        with unseen():
            for observer, method in self._hooks.everyone["start"]:
                self._call(observer, method, run, self.now)
        self._delivery.settle(self.now)

    def batch(self, batch: Any, step: int, epoch: int) -> None:
        """A training batch begins."""
        reads = bool(self._delivery.waiting)
        if reads:
            with self._pace.looking():
                self._delivery.drain(only_arrived=True)
        if self.assembly is not None:
            self._with_ranks(lambda ranks: ranks.between(step, epoch))
            self.logger.flush(step)
        self.logger.stepping = True
        self._batch_attempts = 0
        due = self._pace.due(self.attempts, self._steps_per_batch, self.batches)
        sync = self.attempts == 0 and self.batches < PATIENCE
        now = self.now
        if due or sync or now.sampled or now.sync or now.readers:
            now = self.now = Moment(run=self.run, sampled=due, sync=sync)
        self._at(batch, step, epoch)
        self.resting = self.attempts >= SETTLED <= self.batches and not due and not reads
        if self.resting and not self._settled:
            self._settled = True
            self._hooks.settle(lambda o, moment: self._call(o, o.looks_between, self.run, moment) is not False)
        self._hooks.choose(due, self.resting)
        self.tell("batch", batch)

    def _at(self, batch: Any, step: int, epoch: int) -> None:
        now = self.now
        now.step, now.epoch, now.batch, now.attempt, now.data = step, epoch, self.batches, self.attempts, batch
        now.idle = self._pace.idle(self.attempts, self.batches)

    @property
    def knows_epochs(self) -> bool:
        """Have there been so many that nobody has to be told any more of one's beginning?"""
        return self._epochs >= EPOCHS

    def epoch_end(self) -> None:
        """A training epoch is done."""
        self._epochs += 1
        self.tell("epoch_end")

    def row(self) -> Row | None:
        """A row of steps at rest that begins with the present one, if that may be."""
        if self.assembly is not None or modes():
            return None
        who = self._hooks.at_rest()
        same = [partial(self._same, o) for o in who if type(o).same_step is not Observer.same_step]
        row = Row(self._pace.steps_left(self.attempts, self._steps_per_batch), same, self.knows_epochs)
        if not all(self._call(o, o.may_rest, self.now, row) is True for o in who):
            return None
        self.now.data = None  # the first batch shall live no longer than the others
        return row

    def _same(self, observer: Observer, optimizer: Any) -> bool:
        try:
            return observer.same_step(getattr(optimizer, "optimizer", optimizer))
        except Exception as error:
            if from_handler(error):
                raise
            self._drop(observer, error)
            return True

    def rested(self, row: Row, step: int, epoch: int, batch: Any = None) -> None:
        """The row is over; ``batch`` is one that has begun and is not in it."""
        first = self.batches
        self.batches += len(row.losses)
        self.attempts += row.steps
        self._epochs += len(row.epochs)
        self._at(None, step, self.now.epoch + sum(n < len(row.losses) for n in row.epochs))
        self.now.batch = self.batches - 1
        self.tell("rested", first, row)
        if batch is not None:
            self._at(batch, step, epoch)

    def validation_batch(self, batch: Any, step: int, epoch: int) -> None:
        """The first validation batch begins."""
        self.now = Moment(run=self.run, step=step, epoch=epoch, sampled=True, sync=True, stage="validation", data=batch)
        self._hooks.choose(sampled=True, resting=False)
        self.tell("validation_batch", batch)

    def validation_batch_end(self) -> None:
        """That batch is done."""
        self.now.data = None

    def tell(self, hook: str, *args: Any) -> None:
        """Any other moment of the current step."""
        at = self.now
        if at.sampled or self._hooks.told[hook] or at.evidence or at.sync:
            with self._pace.looking() if at.sampled else _FREE:
                self._tell(hook, at, *args)
                if at.evidence or at.sync:
                    self._delivery.settle(at)

    def output(self, output: Any) -> None:
        """The user's step has returned."""
        self._delivery.guard("the logger", partial(self.tell, "output", output))

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """An attempt to step."""
        self.now.attempt = self.attempts
        self.tell("before_optimizer_step", optimizer)
        self.attempts += 1
        self._batch_attempts += 1

    def batch_end(self, output: Any) -> None:
        """A training batch is done."""
        self.tell("batch_end", output)
        self.now.data = None
        self.batches += 1
        self._steps_per_batch = max(1, self._batch_attempts)
        self._delivery.send(self.now)

    def around_step(self, batch: Any) -> AbstractContextManager[None]:
        """The observers' scopes around the user's step."""
        return self._scoped("around_step", batch)

    def around_backward(self) -> AbstractContextManager[None]:
        """The observers' scopes around a backward pass."""
        return self._scoped("around_backward")

    @contextmanager
    def _scoped(self, hook: str, *args: Any) -> Iterator[None]:
        """Left in reverse order, whatever is raised inside."""
        entered: list[tuple[Observer, AbstractContextManager[Any]]] = []
        unwatched, aside = compiled_code_unwatched(), False
        try:
            for observer, method in tuple(self._hooks.everyone[hook]):
                for scope in self._scopes(observer, method, *args):
                    if self._call(observer, scope.__enter__) is not _FAILED:
                        entered.append((observer, scope))
            aside = bool(entered) and self._delivery.guard(_COMPILED, lambda: unwatched.__enter__() or True)
            yield
        finally:
            try:
                if aside:
                    self._delivery.guard(_COMPILED, lambda: unwatched.__exit__(None, None, None))
            finally:
                for observer, scope in reversed(entered):
                    self._call(observer, scope.__exit__, None, None, None)

    def _scopes(self, observer: Observer, method: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        def made() -> tuple[Any, ...]:
            with unseen():
                return tuple(method(self.now, *args))

        scopes = self._call(observer, made)
        return () if scopes is _FAILED else scopes

    def failed(self, error: BaseException) -> None:
        """The run raises; everything that is in flight is judged."""
        self._tell("failed", self.now, error)
        self._delivery.settle(self.now, read=True)
        self.now.data = None
        self._delivery.drain()
        self._with_ranks(lambda ranks: ranks.leave(self.now.step, self.now.epoch))

    def end(self) -> None:
        """The fit is over; everything that is in flight is judged."""
        self._delivery.drain()
        before, self.now = self.now, Moment(run=self.run, sync=True)
        self._at(None, before.step, before.epoch)
        self._tell("end", self.now)
        self._delivery.settle(self.now, read=True)
        self._with_ranks(lambda ranks: ranks.close(self.now.step, self.now.epoch))
        self.logger.flush(self.now.step)

    def close(self) -> None:
        """The fit is over, one way or another."""
        for observer, method in self._hooks.everyone["close"]:
            self._call(observer, method)

    def _with_ranks(self, action: Callable[[Assembly], Any]) -> Any:
        """Talk to the other ranks; a store that fails is given up for the rest of the run."""
        if self.assembly is None:
            return None
        try:
            return action(self.assembly)
        except Exception as error:
            if from_handler(error):
                raise
            self.assembly = None
            self.logger.own_fault("the exchange between ranks", error, self.now.step)
            return None

    # -- stopping

    def failure(self, moment: str) -> SanityCheckFailed | None:
        """The exception with which the policy stops the run at this moment, if it does.

        Args:
            moment: ``first`` before the first optimizer step, ``batch`` where a batch begins, ``after`` where it ends,
                ``end`` when the fit is over. With several ranks all stop at the same sample where that is possible.
        """
        logger = self.logger
        if self.assembly is None and not logger.alarmed:
            return None
        mine = logger.must_stop()
        if self.assembly is None:
            stop = mine and not (moment == "batch" and not self.batches)
        elif logger.settings.policy.threshold is None:
            stop = False
        else:
            sampled = self.now.sampled and self.batches > 0
            stop = bool(self._with_ranks(lambda ranks: ranks.stops(moment, mine, self.attempts, sampled)))
        return logger.settings.policy.stop(logger.alerts) if stop else None

    # -- from observers to the logger

    def _tell(self, hook: str, at: Moment, *args: Any) -> None:
        with unseen():
            for observer, method in self._hooks.told[hook]:
                try:
                    method(at, *args)
                except Exception as error:
                    if from_handler(error):
                        raise
                    self._drop(observer, error)

    def _call(self, observer: Observer, method: Callable[..., Any], *args: Any) -> Any:
        try:
            return method(*args)
        except Exception as error:  # noqa: BLE001 - a signal handler's as well: all scopes entered have to be left
            self._drop(observer, error)
            return _FAILED

    def _drop(self, observer: Observer, error: Exception) -> None:
        """This observer looks no more."""
        self.logger.own_fault(f"observer {type(observer).__name__}", error, self.now.step)
        self._hooks.drop(observer)
        self.logger.flush(self.now.step)


_FAILED = object()
_COMPILED = "code that compiles itself"
_FREE = nullcontext()
