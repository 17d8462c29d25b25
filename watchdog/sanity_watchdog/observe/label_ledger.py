"""Class labels over the samples of a run, on the host."""

from collections.abc import Iterator

from ..evidence.base import Evidence
from ..evidence.targets import LabelHistory
from .loss_facts import Facts, Tags, Values

HISTORY = 64
"""Samples that are kept."""


class LabelLedger:
    """Labels per loss call over the samples so far, on the host."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[list[int], list[int], int]] = {}

    def take(self, facts: Facts, values: Values, tags: Tags) -> Iterator[Evidence]:
        """Add one call; yields the history so far."""
        if facts.kind != "softmax" or facts.soft or tags["stage"] != "train" or not values.get("valid"):
            return
        counts, highs, distinct = self._seen.get((facts.function, facts.where), ([], [], 0))
        counts.append(int(values["valid"]))
        highs.append(max(int(values["label_high"]), highs[-1] if highs else 0))
        distinct = max(distinct, int(values["distinct"]))
        self._seen[facts.function, facts.where] = counts, highs, distinct
        del counts[:-HISTORY], highs[:-HISTORY]
        yield LabelHistory(
            function=facts.function,
            where=facts.where,
            classes=int(values["k"]),
            counts=tuple(counts),
            highs=tuple(highs),
            distinct=distinct,
            tokens=not facts.whole_samples or bool(values["positions"] or values["first_only"]),
            **tags,
        )
