from dataclasses import replace
from typing import Any

from sanity_watchdog.alerts import Alert
from sanity_watchdog.checks import Check
from sanity_watchdog.checks.metrics import shared_metric
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.loop import MetricsUsed, MetricUse

SHARED = MetricUse(
    name="accuracy", kind="MulticlassAccuracy", held=20, trained=20, sanity=0, validated=4, computed=True
)
BEST = MetricUse(name="best", kind="MaxMetric", held=1, trained=0, sanity=1, validated=0, computed=True)


def used(use: MetricUse) -> MetricsUsed:
    return MetricsUsed(uses=(use,))


FIRING: list[tuple[Check[Any], Evidence]] = [
    (shared_metric, used(SHARED)),
    (shared_metric, used(BEST)),
    (shared_metric, used(replace(BEST, kind="MeanMetric", validated=3))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (shared_metric, MetricsUsed(uses=())),
    (shared_metric, used(replace(SHARED, held=0))),
    (shared_metric, used(replace(SHARED, computed=False))),
    (shared_metric, used(replace(SHARED, trained=0))),
    (shared_metric, used(replace(BEST, held=0))),
    (shared_metric, used(replace(BEST, kind="MeanMetric"))),
    (shared_metric, used(replace(BEST, sanity=0))),
]


def test_training_updates_are_told_before_those_of_the_sanity_check() -> None:
    (found,) = shared_metric(MetricsUsed(uses=(BEST, replace(SHARED, name="b", held=3), SHARED)))
    assert isinstance(found, Alert)
    assert found.subjects == ("accuracy", "b")
