"""Which zero matrices hold each other at zero, and which of them only wait for data that concern them."""

from collections.abc import Mapping

from ..evidence.parameters import Trace


def deadlocked(traces: tuple[Trace, ...], samples: int) -> list[Trace]:
    """Zero matrices without a gradient in ``samples`` samples in a row, where one of them cannot get any.

    Its partner is another of them (or a gate, or a frozen one) that fits before or behind it, or a layer behind it
    whose weight stands still while its bias learns: nothing but zeros arrives there. Alone, such a matrix waits: a head
    whose targets are all zero or masked so far, an adapter whose task has not come yet.
    """
    known = {t.name: t for t in traces}
    stuck = [t for t in traces if t.matrix and t.trainable and not t.masked and t.idle >= samples]
    biases = {_bias_name(t) for t in stuck}
    gates = [t for t in traces if not t.matrix and t.trainable and t.idle >= samples and t.name not in biases]
    frozen = [t for t in traces if t.matrix and not t.trainable and t.now.largest == 0]
    silent = [t for t in traces if t.matrix and t.trainable and t.now.largest > 0 and _rests(t) and _learns(t, known)]
    held = any(
        any(g.numel == 1 or g.numel in t.shape for g in gates)
        or any(_feeds(t, other) for other in silent)
        or any(
            (_feeds(t, other) and _reached(other, known)) or (_feeds(other, t) and _reached(t, known))
            for other in (*stuck, *frozen)
            if other is not t
        )
        for t in stuck
    )
    return stuck if held else []


def _feeds(inner: Trace, outer: Trace) -> bool:
    """Has ``outer`` as many inputs as ``inner`` has outputs, or a whole number of each, as behind a flattening?"""
    made = inner.shape[1 if inner.table else 0]
    return outer.shape[1] % made == 0 and (made > 1 or outer.shape[1] == made)


def _bias_name(trace: Trace) -> str:
    head, found, tail = trace.name.rpartition("weight")
    return f"{head}bias{tail}" if found else ""


def _rests(trace: Trace) -> bool:
    """Has it not moved since the start?"""
    return (trace.now.norm, trace.now.largest) == (trace.start.norm, trace.start.largest)


def _learns(trace: Trace, known: Mapping[str, Trace]) -> bool:
    """Has its bias moved?"""
    bias = known.get(_bias_name(trace))
    return bias is not None and not _rests(bias)


def _reached(trace: Trace, known: Mapping[str, Trace]) -> bool:
    """May a gradient have arrived at its outputs? Its bias, where it has one, would have moved."""
    return _bias_name(trace) not in known or _learns(trace, known)
