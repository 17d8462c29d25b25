"""What an observer is: something that sees moments of a run and hands over evidence."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from .moment import Moment
from .row import Row
from .run import Run
from .strided import is_freed

Method = TypeVar("Method", bound=Callable[..., Any])

IN_SAMPLES, EVERY_STEP = "in_samples", "every_step"


def in_samples(method: Method) -> Method:
    """Marks a moment of an observer's that is wanted in sampled steps only."""
    setattr(method, IN_SAMPLES, True)
    return method


def every_step(method: Method) -> Method:
    """Marks a moment of an observer's that is wanted in each step of the run: a microsecond at most."""
    setattr(method, EVERY_STEP, True)
    return method


class Observer:
    """Override the moments that matter; the others cost nothing.

    Moments of a step are told in sampled steps, in those in which a sample is read, and in the first ``SETTLED``
    batches and optimizer attempts, where most faults show; ``@in_samples`` and ``@every_step`` narrow and widen that.
    Work on a device belongs into samples.
    Nothing here may change a tensor, a generator, a mode or an optimizer, wait for a device outside ``at.sync``, or
    keep a tensor of the user's alive beyond the step. An observer that raises is switched off and reported as
    ``WD001``; the run goes on.

    The order in one step of automatic optimisation: ``batch``, ``around_step`` entered, forward, ``output``,
    ``around_step`` left, ``before_backward``, ``after_backward`` (gradients still scaled), ``before_optimizer_step``
    (unscaled unless fused, not yet clipped), ``after_optimizer_step`` (gradients as applied; not called for a step
    that the loss scaler skips), ``batch_end``. In manual optimisation everything from ``before_backward`` to
    ``after_optimizer_step`` happens, any number of times, inside ``around_step`` and before ``output``.
    """

    codes: tuple[str, ...] = ()
    """Codes or prefixes of the checks that need this observer; it is not made when none of them is selected."""

    def looks_between(self, run: Run, moment: str) -> bool:
        """Could its ``@every_step`` method of this name see anything in this run? Asked once, when the run settles."""
        return True

    def may_rest(self, at: Moment, row: Row) -> bool:
        """May a row of steps begin of which ``@every_step`` methods are not told? At its end ``rested`` is."""
        return False

    def same_step(self, optimizer: Optimizer) -> bool:
        """In a row: ``optimizer`` is about to step. If not as it always did, the row ends with this batch."""
        return True

    def rested(self, at: Moment, first: int, row: Row) -> None:
        """A row of steps is over whose first batch was ``first``."""

    def start(self, run: Run, at: Moment) -> None:
        """Everything is set up, the first step has not begun."""

    def batch(self, at: Moment, batch: Any) -> None:
        """A training batch is on its device."""

    def around_step(self, at: Moment, batch: Any) -> Iterable[AbstractContextManager[Any]]:
        """Scopes to enter around a sampled training or validation step, outermost first."""
        return ()

    def around_backward(self, at: Moment) -> Iterable[AbstractContextManager[Any]]:
        """Scopes to enter around the backward pass alone, without the hooks around it; in the first step only."""
        return ()

    def output(self, at: Moment, output: Any) -> None:
        """The step has returned; ``output`` is what ``training_step`` gave."""

    def before_backward(self, at: Moment, loss: Tensor) -> None:
        """``loss`` is scaled and divided by the accumulation."""

    def after_backward(self, at: Moment) -> None:
        """Gradients of this micro-batch have been added; still scaled."""

    def before_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        """An attempt to step; ``at.attempt`` is its number."""

    def after_optimizer_step(self, at: Moment, optimizer: Optimizer) -> None:
        """The optimizer has really stepped; gradients are as it applied them."""

    def batch_end(self, at: Moment, output: Any) -> None:
        """The batch is done; ``output`` is what Lightning hands to ``on_train_batch_end``."""

    def epoch_start(self, at: Moment) -> None:
        """The first backward pass of a training epoch is about to run; the device must not be waited for."""

    def epoch_end(self, at: Moment) -> None:
        """A training epoch is done."""

    def validation_opens(self, at: Moment) -> None:
        """A validation loop (also the sanity check) is about to begin, before the hooks of the module around it."""

    def validation_start(self, at: Moment) -> None:
        """The first batch of any validation loop is about to be run (of the sanity check as well)."""

    def validation_batch(self, at: Moment, batch: Any) -> None:
        """The first validation batch of the run (of the sanity check, where there is one); ``at.sync`` is true."""

    def validation_end(self, at: Moment) -> None:
        """A validation loop has ended (the sanity check's included)."""

    def metrics(self, at: Moment, values: Mapping[str, Any]) -> None:
        """After ``validation_end``: what the user has logged so far."""

    def failed(self, at: Moment, error: BaseException) -> None:
        """The run raises ``error``; reading the device is allowed and may itself fail."""

    def end(self, at: Moment) -> None:
        """The fit is over; reading the device is allowed."""

    def close(self) -> None:
        """Last call, however the fit ended: stop what still runs. Nothing can be handed over any more."""


_ASKED = ("codes", "looks_between", "may_rest", "same_step")
MOMENTS = tuple(n for n in vars(Observer) if not n.startswith("_") and n not in _ASKED)
"""Names of the moments that observers are told of."""


def writes(tensor: Tensor) -> int:
    """How often it, or what it shares its memory with, was written to."""
    return 0 if tensor.is_inference() else tensor._version


def is_plain(tensor: Any) -> bool:
    """May the values of this be looked at?

    No subclass (DTensor, FakeTensor), no functorch wrapper, meta or nested, and not a parameter that a sharding
    strategy has freed until it is gathered again.
    """
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and not tensor.is_meta
        and not tensor.is_nested
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not (tensor.layout is torch.strided and is_freed(tensor))
    )


def loss_of(output: Any) -> Tensor | None:
    """The loss in what a training step returned, where it is one number whose value may be looked at."""
    mapping = type(output) is dict or isinstance(output, Mapping)
    loss = output.get("loss") if mapping else output
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 and is_plain(loss) else None
