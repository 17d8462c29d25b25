"""Whether the loss has a gradient."""

from ..alerts import Severity
from ..evidence.detached import Cut, DetachedLoss, DetachedTerm
from .check import Findings, check

READS = ("item", "tolist", "numpy", "float", "array")
MAKES = ("tensor", "as_tensor", "asarray", "new_tensor", "Tensor")


@check("WD109", "detached-loss", Severity.ERROR, DetachedLoss)
def detached_loss(seen: DetachedLoss) -> Findings:
    """No gradient can flow from the loss that the step returned, or from a term of it.

    **What it sees.** Whether the returned loss has a gradient history, in the first step also whether that ends in a
    parameter, and the operation and line at which the last value that had one lost it: ``argmax``, ``detach``, a
    ``no_grad`` block, ``item``, ``torch.tensor``. In the first step also terms that are added to the loss (values of
    loss functions, squared or absolute differences) and compare what trained parts have made, after it has lost its
    gradient: a WARNING, unless the same two are compared with a gradient as well, as in VQ-VAEs. Likewise numbers that
    are added behind a comparison, ``argmax`` or rounding, such as an error rate.

    **Why it matters.** Backward fails with "element 0 of tensors does not require grad", in a trace that ends inside
    the framework; or, with a new tensor made from a number, it runs and nothing is learned. A term without a gradient
    is a constant: the loss looks complete, and what was to be learned from that term is not.

    **How to fix.** Compute the loss from values that keep their history::

        F.cross_entropy(scores, labels)                  # not of scores.argmax(1).float()
        total = total + loss                             # not torch.tensor(loss.item(), requires_grad=True)
        torch.stack(losses).mean()                       # not torch.tensor(losses, requires_grad=True).mean()

    **When to ignore.** A term that is added for the value alone. Else never in automatic optimisation; a step without a
    loss returns None.

    **Limits.** Where operations are not followed (compiled code, later steps) the place of the cut is not known. A
    detach in front of a part of the network only is WD314's matter.

    **Sources.** PyTorch's autograd notes: history is kept only by differentiable operations in grad mode.
    """
    if isinstance(seen, DetachedTerm) and seen.cut is not None:
        yield detached_loss.alert(
            seen,
            f"a term of the loss has no gradient: {seen.function} {_said(seen.cut)}",
            hint=f"compute it from the values before {seen.cut.operation} at {seen.cut.where}",
            subjects=(seen.function,),
            severity=Severity.WARNING,
            where=seen.where,
            evidence={"operation": seen.cut.operation},
        )
    if seen.attached:
        return
    cut = seen.cut
    if cut is None and seen.history:
        message = "the gradient history of the loss ends in no parameter of the model"
        hint = "build the loss from the model's own outputs, not from a tensor that was made of their values"
    elif cut is None:
        message, hint = "the loss has no gradient history", "look for argmax, detach, no_grad or item before the loss"
    elif cut.operation in READS:
        message = f"the loss has no gradient: its last value with one was read to the host by {cut.operation}()"
        hint = f"keep tensors instead of numbers: remove {cut.operation}() at {cut.where}"
    elif cut.operation in MAKES:
        message = f"the loss has no gradient: {cut.operation}() makes a new tensor of values that had one"
        hint = f"join them with torch.stack instead of {cut.operation}() at {cut.where}"
    elif cut.operation == "no_grad":
        message = "the loss has no gradient: it was computed inside no_grad"
        hint = f"leave the no_grad block at {cut.where}"
    else:
        message = f"the loss has no gradient: it is lost at {cut.operation}()"
        hint = f"compute the loss from the values before {cut.operation}() at {cut.where}"
    yield detached_loss.alert(
        seen,
        message,
        hint=hint,
        where="" if cut is None else cut.where,
        evidence={"operation": "" if cut is None else cut.operation},
    )


def _said(cut: Cut) -> str:
    return "inside no_grad" if cut.operation == "no_grad" else f"of what {cut.operation}() cut off"
