"""Does a gradient flow from the loss that the step returned?"""

import torch
from torch import Tensor

from ..evidence.detached import DetachedLoss
from .leaves import reaches_nothing
from .moment import Moment

NO_HISTORY = "does not require grad and does not have a grad_fn"
"""What autograd says of a loss without a gradient."""


def note_detached(at: Moment, loss: Tensor) -> None:
    """Emit whether the loss that the step returned leads back to a parameter."""
    trace = at.trace
    if loss.grad_fn is not None:
        ends = not (at.sync and reaches_nothing(loss, at.run))
        at.emit(DetachedLoss(attached=ends, history=True, cut=trace.read if trace else None, **at.tags()))
    elif not loss.requires_grad:
        cut = None if trace is None else trace.cuts.get(loss) or trace.read
        at.emit(DetachedLoss(attached=False, cut=cut, **at.tags()))
    elif trace is not None and at.sync and not isinstance(loss, torch.nn.Parameter) and float(loss.detach().sum()):
        # a new leaf made of a number; a zero is how people skip a batch
        at.emit(DetachedLoss(attached=False, cut=trace.read, **at.tags()))
