"""What is wrong with the targets of an alignment, as ``ctc_loss`` makes one."""

from ..alerts import Severity
from ..evidence.alignments import AlignmentTargets

FORGIVEN = 4
"""Samples of a batch that may be impossible under ``zero_infinity`` by chance."""


def alignment_fault(seen: AlignmentTargets) -> tuple[Severity, str, str]:
    error, k, blank = Severity.ERROR, seen.classes, seen.blank
    if seen.longest > seen.steps:
        return (
            error,
            f"input lengths up to {seen.longest:,}, but there are {seen.steps:,} time steps",
            "give the lengths after the network's strides and pooling, not those of its inputs",
        )
    if seen.error:
        return error, f"{seen.function} raised {seen.error}"[:99], "compare shapes and lengths with its documentation"
    if seen.low < 0 or seen.high >= k:
        return (
            error,
            f"letters span {seen.low:g} … {seen.high:g}, but there are {k:,} classes (0 … {k - 1:,})",
            "look for padding that target_lengths counts; else give the head a class for each letter and the blank",
        )
    if seen.blanks:
        padding = seen.ending > seen.blanks / 2
        return (
            error,
            f"{seen.blanks:,} of {seen.valid:,} letters are {blank}, which is the blank"
            + (f"; {seen.ending:,} of them end a target" if padding else ""),
            f"count only the letters before the padding: target_lengths = (letters != {blank}).sum(1)"
            if padding
            else f"keep {blank} for the blank (count letters from {1 if blank == 0 else 0}), or pass another blank=",
        )
    if seen.too_long and (not seen.zero_infinity or seen.too_long >= max(FORGIVEN, seen.samples / 2)):
        counts = "count as 0" if seen.zero_infinity else "cost infinity"
        return (
            error,
            f"{seen.too_long:,} of {seen.samples:,} targets need more steps than their input has: they {counts}",
            "lower the network's stride, check both lengths"
            + ("" if seen.zero_infinity else ", or pass zero_infinity=True for a few such samples"),
        )
    return error, "", ""
