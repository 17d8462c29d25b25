"""Recorded operators against the tables: what is missing where."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..evidence.portability import OperatorCall, OperatorGap, Operators
from .native_functions import Support, plain
from .targets import KEYS, NotJudgedError, table_for
from .ways_out import never_reached, way_out

OURS = "aten::"
WITHOUT_KERNELS = frozenset({"prim", "prims", "higher_order", "profiler", "c10d", "_c10d_functional"})
"""Namespaces whose operators need no kernel of a backend."""


def judged(
    calls: Iterable[OperatorCall],
    targets: Iterable[str],
    tags: Mapping[str, Any],
    environ: Mapping[str, str] = os.environ,
) -> Operators:
    """The operators of one step for every target."""
    calls = tuple(calls)
    sources: list[tuple[str, str]] = []
    unjudged: list[tuple[str, str]] = []
    gaps: list[OperatorGap] = []
    for target in targets:
        try:
            found, source = _gaps(calls, target)
        except NotJudgedError as reason:
            unjudged.append((target, str(reason)))
            continue
        sources.append((target, source))
        gaps += found
    libraries = {c.name.partition("::")[0] for c in calls if not c.name.startswith(OURS)}
    return Operators(
        count=len({c.name for c in calls}),
        targets=tuple(sources),
        unjudged=tuple(unjudged),
        gaps=tuple(gaps),
        foreign=tuple(sorted(libraries - WITHOUT_KERNELS)),
        fallback=environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0"),
        **tags,
    )


def _gaps(calls: tuple[OperatorCall, ...], target: str) -> tuple[list[OperatorGap], str]:
    table = table_for(target)
    gaps = []
    for call in calls:
        if not call.name.startswith(OURS) or never_reached(call.name, target):
            continue
        support = table.support(plain(call.name), KEYS[target])
        if support in (Support.MISSING, Support.ROUND_TRIP):
            missing = support is Support.MISSING
            gaps.append(OperatorGap(call, target, missing, table.source, way_out(call.name, target)))
    return gaps, table.source
