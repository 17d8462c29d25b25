"""Metrics that mix stages."""

from collections.abc import Sequence

from ..alerts import Severity
from ..evidence.loop import MetricsUsed, MetricUse
from .check import Findings, check

EXTREMES = ("MaxMetric", "MinMetric")
"""Metrics that remember a single best value: one early update spoils them for good."""


@check("WD507", "shared-metric", Severity.WARNING, MetricsUsed)
def shared_metric(seen: MetricsUsed) -> Findings:
    """A metric's value mixes batches of two stages.

    **What it sees.** The update counts of the module's ``torchmetrics`` objects around training steps and validation
    loops. An alert needs an object that enters a validation loop with updates of training steps, or with those of the
    sanity check, that is then updated, and whose accumulated value is asked for.

    **Why it matters.** The logged validation score contains training batches; a best score that was reached on the two
    batches of the sanity check by an untrained model is never beaten, and checkpoints by it stop.

    **How to fix.** One object per stage; reset what the sanity check has filled::

        self.train_accuracy, self.val_accuracy = Accuracy(...), Accuracy(...)

        def on_train_start(self):
            self.best.reset()

    **When to ignore.** Where a value over both stages is meant.

    **Limits.** Metrics of other libraries, and sums kept by hand, are not seen.

    **Sources.** TorchMetrics, "Metrics in Lightning": a separate metric for each stage.
    """
    trained = [use for use in seen.uses if use.held and use.trained and use.validated and use.computed]
    if trained:
        worst = max(trained, key=lambda use: use.held)
        yield shared_metric.alert(
            seen,
            f"{worst.kind} enters validation with what training steps left in it (updates: {worst.held:,})",
            hint="use one metric object per stage, or reset it before validation",
            subjects=_by_held(trained),
            evidence={"held": worst.held, "trained": worst.trained},
        )
        return
    left = [use for use in seen.uses if _from_sanity_check(use)]
    if left:
        worst = max(left, key=lambda use: use.held)
        yield shared_metric.alert(
            seen,
            f"{worst.kind} still holds what the sanity check left in it (updates: {worst.held:,})",
            hint="reset it in on_train_start",
            subjects=_by_held(left),
            evidence={"held": worst.held, "sanity": worst.sanity},
        )


def _from_sanity_check(use: MetricUse) -> bool:
    spoiled_at_once = use.kind in EXTREMES
    return 0 < use.held == use.sanity and not use.trained and (spoiled_at_once or (use.validated > 0 and use.computed))


def _by_held(uses: Sequence[MetricUse]) -> list[str]:
    return [use.name for use in sorted(uses, key=lambda use: -use.held)]
