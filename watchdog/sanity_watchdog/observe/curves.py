"""Evaluates the function of a ``LambdaLR`` ahead of time, where its code proves that this does nothing else."""

import builtins
import dis
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

Curve = Callable[[int], float]

HARMLESS = {"min", "max", "float", "int", "abs", "round", "pow", "bool"}
EFFECTS = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "STORE_NAME", "DELETE", "IMPORT", "YIELD")
NESTING = ("MAKE_FUNCTION", "LOAD_BUILD_CLASS", "LOAD_NAME", "SETUP_WITH", "BEFORE_WITH", "GET_A", "SEND")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
NUMBERS = (int, float, bool, str, type(None))
MATH = {name: value for name, value in vars(math).items() if not name.startswith("_")}
DEPTH = 3
GRID = sorted({0, *(int(1.1**i) for i in range(146))})
"""Advances at which a curve is looked at first, up to a million."""
FLAT = 1e-3
"""Share of the highest rate that counts as the end of a decay."""
VALLEY = 0.1
"""Share of the highest rate down to which a cosine goes, at most."""
FARTHEST = 4096
"""Epochs at which a curve is asked whether it turns."""


@dataclass(frozen=True)
class Shape:
    """A curve in numbers.

    Attributes:
        peak: advances until its highest value; 0 where it starts there.
        length: advances until it stays at (nearly) 0; None where it does not within the distance looked at.
        start: value now over the highest.
        highest: its highest value.
    """

    peak: int
    length: int | None
    start: float
    highest: float


def provable(function: Any, depth: int = DEPTH) -> bool:
    """Does the code of ``function`` only compute numbers from numbers?"""
    if isinstance(function, functools.partial):
        given = (*function.args, *function.keywords.values())
        return all(isinstance(v, NUMBERS) for v in given) and provable(function.func, depth)
    if not isinstance(function, FunctionType) or depth == 0:
        return False
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    try:
        held = {
            n: c.cell_contents for n, c in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        }
    except ValueError:  # a cell that is still empty
        return False
    objects = {}
    for name, value in held.items():
        if isinstance(value, FunctionType):
            if value is not function and not provable(value, depth - 1):
                return False
        elif not isinstance(value, NUMBERS) and value is not math:
            objects[name] = _numbers(value)
    return all(isinstance(v, NUMBERS) for v in defaults) and _harmless(function, objects, depth)


def _harmless(function: FunctionType, objects: Mapping[str, set[str]], depth: int) -> bool:
    """``objects``: variables that are no numbers, and the attributes of theirs that are."""
    plain = {name for names in objects.values() for name in names}
    steps = list(dis.get_instructions(function.__code__))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if step.opname.startswith(EFFECTS + NESTING):
            return False
        if step.opname == "LOAD_GLOBAL" and not _harmless_global(step.argval, function, depth):
            return False
        if step.opname.startswith(ATTRIBUTES) and step.argval not in MATH and step.argval not in plain:
            return False
        if step.argval in objects and (following is None or not following.opname.startswith(ATTRIBUTES)):
            return False
    return True


def _harmless_global(name: str, function: FunctionType, depth: int) -> bool:
    value = function.__globals__.get(name, getattr(builtins, name, None))
    return (
        isinstance(value, NUMBERS)
        or value is math
        or (name in HARMLESS and value is getattr(builtins, name))
        or any(value is one for one in MATH.values())
        or provable(value, depth - 1)
    )


def _numbers(value: Any) -> set[str]:
    """Names of the plain numbers that an object holds, where looking them up runs no code."""
    held = getattr(value, "__dict__", None)
    if not isinstance(held, dict) or any("__getattribute__" in vars(t) for t in type(value).__mro__[:-1]):
        return set()
    names = {name for name, one in held.items() if isinstance(one, NUMBERS) and not hasattr(type(value), name)}
    configured = held.get("_hparams")
    if isinstance(configured, dict) and configured:
        names |= {"hparams", *(name for name, one in configured.items() if isinstance(one, NUMBERS))}
    return names


def shape(function: Curve, now: int) -> Shape | None:
    """Follow ``function``; what it cannot compute counts as 0. None where it is never positive."""
    curve = _finite(function)
    values = [curve(at) for at in GRID]
    if max(values) <= 0:
        return None
    top = values.index(max(values))
    peak = _top(curve, GRID[max(top - 1, 0)], GRID[min(top + 1, len(GRID) - 1)])
    highest = curve(peak)
    low = FLAT * highest
    length = _first(lambda at: curve(at) <= low, peak, GRID[-1]) if values[-1] <= low else None
    return Shape(peak if values[0] < highest else 0, length, curve(now) / highest, highest)


def turns(function: Curve, end: int) -> bool:
    """Does ``function`` turn at ``end`` and come up again, as a cosine does that is followed beyond its end?"""
    if not 1 < end <= FARTHEST:
        return False
    curve = _finite(function)
    values = [curve(at) for at in range(2 * end + 1)]
    highest = max(values)
    alike = all(abs(values[end + n] - values[end - n]) <= FLAT * highest for n in {1, 2, end // 4})
    return alike and values[end] <= VALLEY * highest and max(values[end:]) >= (1 - FLAT) * highest > 0


def _finite(function: Curve) -> Curve:
    def curve(at: int) -> float:
        try:
            value = float(function(at))
        except Exception:  # noqa: BLE001
            return 0.0
        return value if math.isfinite(value) else 0.0

    return curve


def _top(curve: Curve, low: int, high: int) -> int:
    """First of the highest values between two points around one hill."""
    left, right = low, high
    while right - left > 2:
        third = (right - left) // 3
        if curve(left + third) < curve(right - third):
            left += third
        else:
            right -= third
    best = max(range(left, right + 1), key=curve)
    limit = (1 - 1e-6) * curve(best)
    return _first(lambda at: curve(at) >= limit, low, best)


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """First point at which what holds at ``high`` holds, if it holds from then on."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
