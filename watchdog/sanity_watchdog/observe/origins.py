"""Which activation made a tensor, and over which axis."""

from collections.abc import Sequence

from ..evidence.losses import Origin
from .operation import Operation
from .operations import ACTIVATIONS, SUBTRACTS, VIEWS
from .site import user_line

TWICE = {"log_softmax": "softmax", "softmax": "softmax"}
TWICE |= dict.fromkeys(("logsigmoid", "sigmoid", "softplus"), "sigmoid")
"""Activations that make probabilities or their logarithms of scores: by which the scores cannot have been made."""
Line = tuple[float, float]
SIGMOID: Line = (0.5, 0.5)


def origin_of(
    op: Operation, raw: bool = False, of: Origin | None = None, line: Line | None = None, grown: Sequence[int] = ()
) -> Origin | None:
    """The activation that an operation is, None for other functions; ``raw`` scores of a layer may be clamped as well.

    ``of`` is the one that made its argument: the exponential of a ``log_softmax`` is a softmax. ``line`` is factor and
    shift that its result has of a tanh, ``grown`` what its arguments are of an exponential.
    """
    name, args, out = op.name, op.args, op.out
    if of is not None and of.name == "sigmoid" and name == "rsub" and args[1:2] == (1,):
        return of  # the other answer's probability
    if (line == SIGMOID and name not in VIEWS) or _is_sigmoid(op, grown):
        return Origin("sigmoid", tuple(out.shape), None, user_line())
    if name == "exp" and of is not None and of.name == "log_softmax":
        return Origin("softmax", of.shape, of.axis, user_line())
    if raw and name in ("clamp", "clip"):
        return Origin("clamp", tuple(out.shape), None, user_line())
    plain = _plain(name)
    if plain not in ACTIVATIONS:
        return None
    axis = op.kwargs.get("dim", next((a for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)), None))
    if plain not in ("softmax", "log_softmax"):
        axis = None
    elif axis is None:
        axis = 0 if out.ndim in (0, 1, 3) else 1
    return Origin(plain, tuple(out.shape), axis if axis is None else axis % max(out.ndim, 1), user_line())


def grown_by(op: Operation, grown: int) -> int:
    """1 for an exponential, 2 for one plus an exponential, 0 for anything else; ``grown``: of its argument."""
    if op.name == "exp":
        return 1
    if op.name == "add" and grown == 1 and op.args[1:2] == (1,):
        return 2
    return grown if op.name in VIEWS else 0


def _is_sigmoid(op: Operation, grown: Sequence[int]) -> bool:
    """Is it one, or an exponential, over one plus that?"""
    if list(grown) == [1, 2]:
        return op.name == "div"
    over = op.name == "reciprocal" or (op.name == "rdiv" and op.args[1:2] == (1,))
    return list(grown) == [2] and (over or (op.name == "pow" and op.args[1:2] == (-1,)))


def _plain(name: str) -> str:
    return name.replace("log_sigmoid", "logsigmoid")


def note_twice(found: list[tuple[Origin, Origin]], name: str, origin: Origin | None, given: Origin | None) -> None:
    """Add an activation to ``found`` if it makes probabilities, or their logarithms, of what are probabilities."""
    if origin is None or given is None or TWICE.get(origin.name) != given.name or _plain(name) != origin.name:
        return  # the complement of a sigmoid has the origin of one, and is none
    if origin.axis is None or (origin.shape, origin.axis) == (given.shape, given.axis):
        found.append((origin, given))


def line_of(op: Operation, line: Line | None) -> Line | None:
    """Factor and shift of a tanh after an operation on what has the ``line``; None where there are none."""
    name, args = op.name, op.args
    if name == "tanh":
        return 1.0, 0.0
    if line is None or name in VIEWS:
        return line
    numbers = [a for a in args[:2] if isinstance(a, (int, float)) and not isinstance(a, bool)]
    if len(numbers) != 1 or not op.inputs:
        return None
    (number,), (factor, shift), leads = numbers, line, args[0] is op.inputs[0]
    if name == "add":
        return factor, shift + number
    if name == "mul":
        return factor * number, shift * number
    if name == "div" and leads and number:
        return factor / number, shift / number
    if name in SUBTRACTS:
        from_it = leads and name == "sub"
        return (factor, shift - number) if from_it else (-factor, number - shift)
    return None
