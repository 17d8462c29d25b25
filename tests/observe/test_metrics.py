"""Metrics of several stages in real runs."""

from typing import Any

import pytest
import torch
from torchmetrics import MaxMetric, MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from tests.runs import Classifier, assert_awake, blobs, codes, loader, watched


class Measured(Classifier):
    """Logs an accuracy in both stages; ``shared`` makes it one object."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.train_accuracy = MulticlassAccuracy(10)
        self.val_accuracy = self.train_accuracy if shared else MulticlassAccuracy(10)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self.net(x)
        self.train_accuracy(scores, y)
        self.log("train", self.train_accuracy)
        return self.loss(scores, y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.val_accuracy(self.net(x), y)
        self.log("val", self.val_accuracy)


class BatchValues(Measured):
    """One object, but only the values of single batches are used."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self.net(x)
        self.log("train", self.train_accuracy(scores, y))
        return self.loss(scores, y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val", self.val_accuracy(self.net(x), y))


class ComputesByHand(Measured):
    """One object, whose value is asked for and cleared after validation only."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.val_accuracy.update(self.net(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log("val", self.val_accuracy.compute())
        self.val_accuracy.reset()


class Collection(Classifier):
    """Several metrics in one collection for both stages, or a clone for each."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        metrics = MetricCollection([MulticlassAccuracy(10), MulticlassF1Score(10)])
        self.train_metrics = metrics if shared else metrics.clone(prefix="train_")
        self.val_metrics = metrics if shared else metrics.clone(prefix="val_")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, y = batch
        scores = self.net(x)
        self.train_metrics.update(scores, y)
        return self.loss(scores, y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.val_metrics.update(self.net(x), y)

    def on_validation_epoch_end(self) -> None:
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()

    def on_train_epoch_end(self) -> None:
        self.log_dict({f"mean_{k}": v for k, v in self.train_metrics.compute().items()})
        self.train_metrics.reset()


class ResetsByHand(Measured):
    """One object, reset before each stage."""

    def on_validation_epoch_start(self) -> None:
        self.train_accuracy.reset()


class Best(Classifier):
    """Remembers the best validation score; ``kind`` of its memory."""

    def __init__(self, kind: Any = MaxMetric, reset: str = "") -> None:
        super().__init__()
        self.best, self.reset = kind(), reset

    def on_train_start(self) -> None:
        if self.reset == "start":
            self.best.reset()

    def on_validation_epoch_start(self) -> None:
        if self.reset == "validation":
            self.best.reset()

    def on_validation_epoch_end(self) -> None:
        self.best(torch.tensor(0.5))
        self.log("best", self.best.compute())


def run(module: Classifier, sanity: int = 1) -> Any:
    data = loader(*blobs(64), batch_size=16)
    return watched(module, data, data, max_steps=-1, max_epochs=2, num_sanity_val_steps=sanity)


@pytest.mark.parametrize("sanity", [0, 1])
@pytest.mark.parametrize("kind", [Measured, ComputesByHand, Collection])
def test_one_object_for_two_stages_is_told(kind: Any, sanity: int) -> None:
    dog = run(kind(shared=True), sanity)
    assert "WD507" in codes(dog)
    (alert,) = (a for a in dog.alerts if a.code == "WD507")
    assert alert.subjects[0].startswith("train_")


def test_a_best_score_of_the_sanity_check_is_told_at_the_first_batch() -> None:
    dog = run(Best())
    (alert,) = (a for a in dog.alerts if a.code == "WD507")
    assert (alert.subjects, alert.step) == (("best",), 0)


def test_a_mean_over_the_sanity_check_is_told_once_it_is_used() -> None:
    dog = run(Best(MeanMetric))
    assert "WD507" in codes(dog)


@pytest.mark.parametrize(
    ("module", "sanity"),
    [
        pytest.param(Measured(shared=False), 1, id="quiet-one-per-stage"),
        pytest.param(Collection(shared=False), 1, id="quiet-clones"),
        pytest.param(BatchValues(shared=True), 1, id="quiet-batch-values"),
        pytest.param(ResetsByHand(shared=True), 1, id="quiet-reset-by-hand"),
        pytest.param(Best(), 0, id="quiet-no-sanity-check"),
        pytest.param(Best(reset="start"), 1, id="quiet-reset-at-the-start"),
        pytest.param(Best(MeanMetric, reset="validation"), 1, id="quiet-reset-each-time"),
    ],
)
def test_metrics_in_order_are_quiet(module: Classifier, sanity: int) -> None:
    dog = run(module, sanity)
    assert "WD507" not in codes(dog)
    assert "WD507" in dog.summary.judged
    assert_awake(dog)


def test_without_metrics_it_says_so() -> None:
    assert run(Classifier()).summary.skipped["WD507"] == "no torchmetrics object in the module"
