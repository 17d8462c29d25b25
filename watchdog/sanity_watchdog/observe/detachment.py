"""Does a gradient flow from the loss that the step returned, and where was it lost?"""

import torch
from torch import Tensor

from ..evidence.detached import Cut, DetachedLoss
from .calls import Trace
from .leaves import reaches_nothing
from .moment import Moment
from .operation import Operation
from .operations import FROM_HOST
from .site import user_line

NO_HISTORY = "does not require grad and does not have a grad_fn"
"""What autograd says of a loss without a gradient."""


def note_cut(trace: Trace, op: Operation) -> None:
    """Write down where an operation's result has lost the gradient that its inputs have, or had."""
    inputs, out = op.inputs, op.out
    learned = any(t.requires_grad for t in inputs)
    if learned and op.name in FROM_HOST and out.grad_fn is None:
        trace.read = Cut(op.name, user_line())
    if out.requires_grad or trace.cuts.get(out) is not None:
        return
    if learned:
        trace.cuts.put(out, Cut(op.name.strip("_") if torch.is_grad_enabled() else "no_grad", user_line()))
    elif (cut := next(filter(None, map(trace.cuts.get, inputs)), None)) is not None:
        trace.cuts.put(out, cut)


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
