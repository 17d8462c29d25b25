"""Corners of torch, Python and Lightning in which something of ours could be met: the run does not notice us."""

import contextlib
import copy
import gc
import pickle
import weakref
from typing import Any, ClassVar

import lightning as L
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map

from sanity_watchdog import SanityWatchdog

from .runs import Classifier, Manual, assert_awake, blobs, loader, mlp, trainer
from .test_unusual import assert_unharmed


class Named(TorchFunctionMode):
    """A function mode of the user's, which notes what is called."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.notes.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    """A dispatch mode of the user's; a ``detach`` is dispatched once more for each mode in older torch."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "detach" not in str(func):
            self.notes.append(str(func))
        return func(*args, **(kwargs or {}))


def called_under(kind: Any, enter: str, leave: str, *dogs: SanityWatchdog) -> list[str]:
    """What a mode of the user's sees that is entered at one moment of a step and left at another."""
    notes: list[str] = []

    class Crossing(Classifier):
        mode: Any = None

        def at(self, moment: str) -> None:
            if moment == leave and self.mode is not None:
                self.mode.__exit__(None, None, None)
                self.mode = None
            elif moment == enter and self.mode is None:
                self.mode = kind(notes)
                self.mode.__enter__()

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.at("before")

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.at("begins")
            loss = super().training_step(batch, batch_idx)
            self.at("ends")
            return loss + 0 * loss.detach()

        def on_before_backward(self, loss: Tensor) -> None:
            self.at("after")

    L.seed_everything(2, verbose=False)
    trainer(*dogs, max_steps=4).fit(Crossing(), loader(*blobs()))
    assert not _get_current_function_mode_stack()
    assert not _get_current_dispatch_mode_stack()
    return notes


@pytest.mark.parametrize(("enter", "leave"), [("before", "begins"), ("before", "ends"), ("ends", "after")])
@pytest.mark.parametrize("kind", [Named, Dispatched])
def test_modes_that_a_step_does_not_leave_in_order(kind: Any, enter: str, leave: str) -> None:
    dog = SanityWatchdog(fail_on=None, every_n_steps=1, targets=("mps",))
    plain = called_under(kind, enter, leave)
    assert called_under(kind, enter, leave, dog) == plain
    assert plain or leave == "begins"
    assert_awake(dog)


class Wrapper(Tensor):
    """A kind of tensor that holds another one and notes what is done to it, as quantised weights are."""

    notes: ClassVar[list[str]] = []
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "Wrapper":
        made = Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, strides=held.stride())  # type: ignore[attr-defined]
        made.held = held.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.notes.append(str(func))
        given = tree_map(lambda t: t.held if isinstance(t, Wrapper) else t, (args, kwargs or {}))
        out = func(*given[0], **given[1])
        if func._schema.is_mutable:
            return args[0]
        return tree_map(lambda t: cls(t) if isinstance(t, Tensor) else t, out)


class Held(Classifier):
    """One weight, and with it the gradients, the scores and the loss, is a :class:`Wrapper`."""

    def __init__(self) -> None:
        super().__init__(optimizer=torch.optim.SGD, lr=0.1, foreach=False)
        self.net[0].weight = nn.Parameter(Wrapper(self.net[0].weight.detach()))


def test_a_kind_of_weight_that_notices_its_use() -> None:
    def noted(*dogs: SanityWatchdog) -> list[str]:
        Wrapper.notes.clear()
        L.seed_everything(2, verbose=False)
        trainer(*dogs).fit(Held(), loader(*blobs()))
        return list(Wrapper.notes)

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    plain = noted()
    assert plain
    assert noted(dog) == plain
    assert not dog.summary.broken


@pytest.mark.parametrize("every", [1, 101])
def test_an_exception_leaves_no_variables_alive(every: int) -> None:
    class Huge:
        pass

    alive: list[weakref.ref[Huge]] = []

    class Failing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3:
                huge = Huge()
                alive.append(weakref.ref(huge))
                raise ValueError("too large")
            return super().training_step(batch, batch_idx)

    dog = SanityWatchdog(fail_on=None, every_n_steps=every)
    gc.disable()
    try:
        for dogs in ([], [dog]):
            with contextlib.suppress(ValueError):
                trainer(*dogs).fit(Failing(), loader(*blobs()))
            assert alive.pop()() is None
    finally:
        gc.enable()
    assert_awake(dog)


def test_a_module_is_neither_kept_nor_copied_by_the_callback() -> None:
    copies: list[str] = []

    class Local(Classifier):
        def __deepcopy__(self, memo: Any) -> Any:
            copies.append("copied")
            return self

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            copy.deepcopy(self.trainer.callbacks)
            pickle.dumps(self.trainer.callbacks)  # this class cannot be pickled

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    net = Local()
    trainer(dog).fit(net, loader(*blobs()))
    assert not copies
    assert not any(getattr(value, "__self__", None) is net for value in vars(dog).values())
    assert_awake(dog)


def test_a_strategy_that_is_wrapped_meanwhile_stays_wrapped() -> None:
    def counted(*dogs: SanityWatchdog) -> list[int]:
        steps: list[int] = []

        class Wrapping(Classifier):
            def training_step(self, batch: Any, batch_idx: int) -> Any:
                if self.global_step == 2:
                    strategy = self.trainer.strategy
                    real = strategy.training_step

                    def wrapped(*args: Any, **kwargs: Any) -> Any:
                        steps.append(self.global_step)
                        return real(*args, **kwargs)

                    strategy.training_step = wrapped  # type: ignore[method-assign]
                return super().training_step(batch, batch_idx)

        trainer(*dogs).fit(Wrapping(), loader(*blobs()))
        return steps

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    assert counted(dog) == counted() == [3, 4, 5, 6, 7]
    assert_awake(dog)


class Ahead(torch.optim.Optimizer):
    """Wraps another optimizer, as many do, and stands in for what torch's own ``__init__`` sets up."""

    def __init__(self, parameters: Any, lr: float) -> None:
        self.inner = torch.optim.Adam(parameters, lr)
        self.param_groups, self.state, self.defaults = self.inner.param_groups, self.inner.state, self.inner.defaults
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}  # type: ignore[assignment]

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


def test_an_optimizer_that_takes_no_hooks() -> None:
    assert_unharmed(lambda: Classifier(optimizer=Ahead))


def test_a_backward_pass_while_gradients_are_switched_off() -> None:
    class Off(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            loss, optimizer = F.cross_entropy(self.net(batch[0]), batch[1]), self.optimizers()
            optimizer.zero_grad()  # type: ignore[union-attr]
            with torch.no_grad():
                self.manual_backward(loss)
            optimizer.step()  # type: ignore[union-attr]

    assert_unharmed(Off)


def test_a_loss_that_a_number_of_numpys_scales() -> None:
    class Scaled(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * np.float64(0.5)

    assert_unharmed(Scaled)


def test_a_module_is_not_asked_for_attributes_that_it_lacks() -> None:
    def lacking(*dogs: SanityWatchdog) -> list[str]:
        asked: list[str] = []

        class Asked(nn.Sequential):
            def __getattr__(self, name: str) -> Any:
                asked.append(name)
                return super().__getattr__(name)

        trainer(*dogs).fit(Classifier(Asked(*mlp())), loader(*blobs()))
        return asked

    dog = SanityWatchdog(fail_on=None, every_n_steps=1)
    assert lacking(dog) == lacking()
    assert_awake(dog)
