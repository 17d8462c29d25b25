"""Does a gradient flow from the loss that the step returned, and where was it lost?"""

from collections.abc import Mapping, Set

import torch
from torch import Tensor

from ..evidence.detached import Cut, DetachedLoss
from .calls import Trace
from .leaves import reaches_nothing
from .moment import Moment
from .nodes import nodes
from .operation import Operation
from .operations import FROM_HOST
from .site import user_line

MOST, FAR = 16, 2_000
"""Places at which gradients end whose leaves are looked for, and nodes of the graph before each."""
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
        cut = Cut(op.name.strip("_") if torch.is_grad_enabled() else "no_grad", user_line())
        trace.cuts.put(out, cut)
        if cut not in trace.ends and len(trace.ends) < MOST and out.dtype is not torch.bool:
            roots = (t._base if t.grad_fn is None and t._base is not None else t for t in inputs)  # seen in no_grad
            behind = (node for t in roots for node in nodes(t, FAR))
            found = {id(node.variable) for node in behind if hasattr(node, "variable")}
            trace.ends[cut] = found | {id(t) for t in inputs if t.requires_grad and t.is_leaf}
    elif (before := next(filter(None, map(trace.cuts.get, inputs)), None)) is not None:
        trace.cuts.put(out, before)


def last_end(ends: Mapping[Cut, set[int]], leaves: Set[int]) -> str:
    """The last operation and line at which gradients of some of the leaves end; what does so on purpose comes before
    what runs in no_grad. Empty for none.
    """
    cuts = sorted((c for c, several in ends.items() if several & leaves), key=lambda c: c.operation != "no_grad")
    return f"{cuts[-1].operation} at {cuts[-1].where}" if cuts else ""


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
