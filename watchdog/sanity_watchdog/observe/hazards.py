"""Operations of the first step's graph that can divide by zero or take its logarithm, by the names of its nodes."""

from typing import Any

from torch import Tensor

from .nodes import nodes

PROBABILITIES = {"SoftmaxBackward0": "a softmax", "SigmoidBackward0": "a sigmoid"}
GUARDS = ("ClampBackward", "ClampMinBackward", "AddBackward", "MaximumBackward", "WhereBackward", "LogSigmoid")
CTC = "a ctc_loss, infinite where a target needs more steps than its input has"
DIVIDING = {
    "SqrtBackward0": "a square root, whose slope at 0 is infinite",
    "RsqrtBackward0": "a reciprocal square root",
    "ReciprocalBackward0": "a reciprocal",
    "StdBackward0": "a standard deviation",
    "AcosBackward0": "an arc cosine",
    "LogBackward0": "a logarithm",
    "DivBackward0": "a division by a tensor",
    "CtcLossBackward0": CTC,
}
REACH = 4


def hazards(loss: Tensor) -> tuple[str, ...]:
    """Such operations in words, the logarithms of probabilities first; what is added or clamped in between guards."""
    logs: dict[str, None] = {}
    others: dict[str, None] = {}
    for node in nodes(loss):
        name = node.name()
        if name == "LogBackward0":
            below = _probability(node, REACH)
            if below:
                logs[f"log of {below}"] = None
                continue
        if name in DIVIDING and not (name == "DivBackward0" and not _tensor_divisor(node)):
            others[DIVIDING[name]] = None
    return (*logs, *(text for name, text in DIVIDING.items() if text in others))


def _probability(node: Any, reach: int) -> str:
    for following, _ in node.next_functions:
        if following is None:
            continue
        name = following.name()
        if name in PROBABILITIES:
            return PROBABILITIES[name]
        if reach and not name.startswith(GUARDS):
            found = _probability(following, reach - 1)
            if found:
                return found
    return ""


def _tensor_divisor(node: Any) -> bool:
    return len(node.next_functions) > 1 and node.next_functions[1][0] is not None
