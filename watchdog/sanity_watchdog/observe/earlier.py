"""What a step shows of earlier training: teachers, reference models, weights that are not to be left."""

from collections.abc import Sequence

from torch.nn import Parameter

from .calls import Trace
from .facts import Fact
from .operation import Operation
from .operations import SUBTRACTS


def note_earlier(trace: Trace, op: Operation, facts: Sequence[Fact]) -> None:
    """Put what an operation shows into ``trace``; ``facts``: of its inputs."""
    trace.distils |= _answers_weigh(op, facts) or _refers(op, facts)
    trace.holds_on |= _holds_on(op)


def _answers_weigh(op: Operation, facts: Sequence[Fact]) -> bool:
    """Do answers of a network, without a gradient, weigh log-probabilities that have one, as a teacher's do?"""
    if op.name != "mul":
        return False
    pairs = list(zip(op.inputs, facts, strict=True))
    scores = next((t for t, f in pairs if f.logs and t.requires_grad), None)
    return scores is not None and any(f.made and t.shape == scores.shape for t, f in pairs if not t.requires_grad)


def _refers(op: Operation, facts: Sequence[Fact]) -> bool:
    """Are these log-probabilities of a network without a gradient, such as the one before fine-tuning?"""
    return op.name == "log_softmax" and not op.out.requires_grad and bool(facts) and facts[0].made


def _holds_on(op: Operation) -> bool:
    """Is what is stored subtracted from a matrix that trains, or the other way round?"""
    if op.name not in SUBTRACTS or len(op.inputs) != 2 or op.inputs[0].shape != op.inputs[1].shape:
        return False
    trained, stored = sorted(op.inputs, key=lambda t: not t.requires_grad)
    return isinstance(trained, Parameter) and trained.ndim > 1 and stored.is_leaf and not stored.requires_grad
