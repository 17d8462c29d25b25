"""Operations of the first step's graph that can divide by zero or take its logarithm, by the names of its nodes."""

from typing import Any

from torch import Tensor

from .nodes import nodes

PROBABILITIES = {"SoftmaxBackward0": "a softmax", "SigmoidBackward0": "a sigmoid"}
GUARDS = ("ClampBackward", "ClampMinBackward", "AddBackward", "MaximumBackward", "WhereBackward", "LogSigmoid")
MASKED = "a softmax behind a mask, NaN where a whole row is masked"
MASKS = ("MaskedFillBackward", "WhereBackward", "BaddbmmBackward")
CTC = "a ctc_loss, infinite where a target needs more steps than its input has"
DIVIDING = {
    "masked": MASKED,
    "SqrtBackward0": "a square root, whose slope at 0 is infinite",
    "RsqrtBackward0": "a reciprocal square root",
    "ReciprocalBackward0": "a reciprocal",
    "StdBackward0": "a standard deviation",
    "AcosBackward0": "an arc cosine",
    "LogBackward0": "a logarithm",
    "ExpBackward0": "an exponential, infinite above e^88",
    "DivBackward0": "a division by a tensor",
    "CtcLossBackward0": CTC,
}
REACH = 4


def hazards(loss: Tensor, causal: bool = False) -> tuple[str, ...]:
    """Such operations in words, the logarithms of probabilities first; what is added or clamped in between guards.

    Behind a ``causal`` mask no row is masked throughout.
    """
    logs: dict[str, None] = {}
    others: dict[str, None] = {}
    for node in nodes(loss):
        name = node.name()
        if name == "LogBackward0":
            below = _probability(node, REACH)
            if below:
                logs[f"log of {below}"] = None
                continue
        if name == "SoftmaxBackward0" and not causal and _is_masked(node):
            others[MASKED] = None
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


def _is_masked(node: Any) -> bool:
    below = node.next_functions[0][0] if node.next_functions else None
    for _ in range(REACH):
        if below is None or below.name().startswith(MASKS):
            return below is not None
        if (
            not below.name().startswith(("View", "UnsafeView", "ToCopy", "Div", "Mul", "Add"))
            or not below.next_functions
        ):
            return False
        below = below.next_functions[0][0]
    return False


def _tensor_divisor(node: Any) -> bool:
    return len(node.next_functions) > 1 and node.next_functions[1][0] is not None
