"""Lightning's hooks around batches: each hands its moment to the watch."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from lightning.pytorch import Callback
from torch import Tensor
from torch.optim import Optimizer

from . import adapter
from .guard import harmless
from .observe.aside import unseen
from .observe.losses import LossCalls
from .observe.row import Row
from .observe.run import Run
from .observe.untraced import untraced
from .watch import Watch
from .wrapping import Wrapping

AT_REST = (
    "on_train_batch_start",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)
"""Hooks that attributes hide while a run rests."""
Early: TypeAlias = tuple[Run, LossCalls]
"""What has looked at the step in which parameters got their shapes."""
LENT = ("log", "log_dict")
"""Methods of the module that Lightning gives to every callback: they would keep it alive, and be copied with us."""


class StepHooks(Callback):
    """What is seen of training and validation batches, while there is a watch."""

    def __init__(self) -> None:
        self.traced = False
        self._watch: Watch | None = None
        self._wrapped = Wrapping()
        self._validated = False
        self._lazy = False
        self._early: Early | None = None
        self._hooks: list[Any] = []
        self._epoch_begins = False
        self._row: Row | None = None
        self._places: dict[str, Callable[..., None]] = {}
        self._announced = False
        self._unannounced = False

    def _looking(self, trainer: Any, module: Any, complete: bool, early: Early | None = None) -> Watch | None:
        """The watch of this fit, made if need be: of calls of losses alone while parameters have no shapes.

        Args:
            trainer: whose run it is.
            module: what is trained.
            complete: do the training loaders exist?
            early: of the step in which the parameters got their shapes.
        """
        raise NotImplementedError

    def _end_watch(self) -> None:
        """Look no more, and give back what is held."""
        raise NotImplementedError

    def _attach(self, trainer: Any, pl_module: Any) -> None:
        """The training loop begins, or the step is over in which the parameters got their shapes."""
        early = self._early
        if early is not None:
            self._end_watch()
            self._validated = False
        watch = self._looking(trainer, pl_module, complete=True, early=early)
        self.traced = adapter.compiles_steps(trainer, pl_module)
        self._announced = self._unannounced = False
        for optimizer in watch.run.optimizers if watch is not None else ():
            with contextlib.suppress(AttributeError, TypeError):  # one that never called torch's own ``__init__``
                self._hooks.append(optimizer.register_step_post_hook(self._stepped))
                if not pl_module.automatic_optimization:
                    self._hooks.append(optimizer.register_step_pre_hook(self._about_to_step))

    def _give_back(self) -> None:
        """The run is over: let go of the module."""
        for name in LENT:
            vars(self).pop(name, None)

    def _finish(self, stopped: bool = False, raised: str = "") -> None:
        """The fit is over, ``stopped`` by the policy or not, or by an exception of the user's of class ``raised``."""
        raise NotImplementedError

    def _own_fault(self, hook: str, error: Exception) -> None:
        """Something of ours raised in ``hook``."""
        raise NotImplementedError

    @harmless
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if self._lazy:  # parameters get their shapes in the first step
            self._lazy = not batch_idx and adapter.has_lazy(pl_module)
            self._attach(trainer, pl_module)
        self._wrapped.undo()  # a StopIteration of the user's ends the epoch without the end of its batch
        if (watch := self._watch) is not None:
            watch.batch(batch, adapter.logged_step(trainer), trainer.current_epoch)
            self._epoch_begins |= not batch_idx
            rests = watch.resting and (watch.knows_epochs or not self._epoch_begins)
            if rests and not self.traced and not self._unannounced:
                self._rest(watch)
            if watch.now.sampled and not self.traced:
                around = functools.partial(watch.around_step, batch)
                self._wrapped.wrap(trainer.strategy, "training_step", around, watch.output)
            if watch.now.sync and not self.traced:
                self._wrapped.wrap(trainer.precision_plugin, "backward", watch.around_backward)
            self._enforce(watch, "batch")

    def _rest(self, watch: Watch) -> None:
        """Begin a row of steps at rest: attributes of this object hide its methods."""
        own, kind = vars(self), type(self)
        if all(getattr(kind, name) is getattr(StepHooks, name) and name not in own for name in AT_REST):
            self._row = row = watch.row()
            if row is not None:
                self._epoch_begins = False
                self._places = row.places({name: getattr(self, name) for name in AT_REST}, self._row_over)
                own.update(self._places)

    @harmless
    def _row_over(self, trainer: Any, outputs: Any, batch: Any, noted: bool) -> None:
        self._wake(trainer, adapter.logged_step(trainer), None if noted else batch)
        if (watch := self._watch) is not None:
            if not noted:
                watch.batch_end(outputs)
            self._enforce(watch, "after")

    def _wake(self, trainer: Any, step: int | None = None, batch: Any = None) -> None:
        """End the row, if there is one.

        Args:
            trainer: whose run it is.
            step: logged step of ``batch``, else of the last one of the row; by default that one has ended altogether.
            batch: has begun since the row's last.
        """
        row = self._leave_row()
        if row is not None and self._watch is not None:
            step = adapter.last_step(trainer) if step is None else step
            self._watch.rested(row, step, trainer.current_epoch, batch)

    def _leave_row(self) -> Row | None:
        """Be awake, whatever the row has kept. What somebody has put over a hidden hook meanwhile stays."""
        row, self._row = self._row, None
        if row is not None:
            row.over = True
            own = vars(self)
            for name, place in self._places.items():
                if own.get(name) is place:
                    del own[name]
            self._places = {}
        return row

    @harmless
    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        if (watch := self._watch) is not None:
            if self._epoch_begins:
                self._epoch_begins = False
                watch.tell("epoch_start")
            watch.tell("before_backward", loss)

    @harmless
    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if self._watch is not None:
            self._watch.tell("after_backward")

    @harmless
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._attempted(optimizer)

    def _attempted(self, optimizer: Any) -> None:
        self._announced = True
        if (watch := self._watch) is not None:
            first = watch.attempts == 0
            watch.before_optimizer_step(getattr(optimizer, "optimizer", optimizer))
            if first:
                self._enforce(watch, "first")

    @untraced
    def _about_to_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Before a step of manual optimisation. Lightning, which gives a closure, tells of its own attempts."""
        if self._row is None and not (self._announced or args[1:] or kwargs):
            self._step_unannounced(optimizer)

    @harmless
    def _step_unannounced(self, optimizer: Optimizer) -> None:
        self._unannounced = True
        self._attempted(optimizer)

    @untraced
    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._announced = False
        if self._row is None:
            self._after_step(optimizer)

    @harmless
    def _after_step(self, optimizer: Optimizer) -> None:
        if self._watch is not None:
            self._watch.tell("after_optimizer_step", optimizer)

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (watch := self._watch) is not None:
            self._wrapped.undo()
            watch.batch_end(outputs)
            self._enforce(watch, "after")

    @harmless
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._row is not None and self._row.epoch_ends():
            return
        self._wake(trainer)
        if self._watch is not None:
            self._watch.epoch_end()

    # -- validation

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._watch is not None:
            self._wake(trainer, adapter.logged_step(trainer))
            self._watch.tell("validation_opens")

    @harmless
    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if (watch := self._watch) is None:
            return
        self._wake(trainer, adapter.logged_step(trainer))
        if not self._validated:
            watch.validation_batch(batch, adapter.logged_step(trainer), trainer.current_epoch)
            around = functools.partial(watch.around_step, batch)
            self._wrapped.wrap(trainer.strategy, "validation_step", around, watch.output)
        if batch_idx == dataloader_idx == 0:
            watch.tell("validation_start")

    @harmless
    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self._watch is not None and not self._validated:
            self._validated = True
            self._wrapped.undo()
            self._watch.validation_batch_end()

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if (watch := self._watch) is not None:
            watch.tell("validation_end")
            with unseen():
                metrics = trainer.callback_metrics
            watch.tell("metrics", metrics)

    def _enforce(self, watch: Watch, moment: str) -> None:
        failure = watch.failure(moment)
        if failure is not None:
            self._finish(stopped=True)  # ``on_exception`` is not called in ranks that Lightning spawned
            raise failure
