"""Healthy runs whose schedules look as if they counted something else."""

from typing import Any

from torch.optim import SGD
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, blobs, loader

from .case import Run, healthy


@healthy
def cosine_cycles_of_two_epochs() -> Run:
    class Cycles(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.1)
            cosine = lrs.CosineAnnealingLR(optimizer, T_max=16, eta_min=1e-3)
            return [optimizer], [{"scheduler": cosine, "interval": "step"}]

    return Cycles(), loader(*blobs()), {"max_epochs": 16, "max_steps": -1}


@healthy
def trial_of_a_plan_for_a_hundred_epochs() -> Run:
    class Planned(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.1)
            return [optimizer], [lrs.CosineAnnealingLR(optimizer, T_max=100)]

    return Planned(), loader(*blobs(800)), {"max_epochs": 5, "max_steps": -1, "limit_train_batches": 20}


@healthy
def trial_of_one_cycle_over_thirty_epochs() -> Run:
    class Planned(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.1)
            return [optimizer], [lrs.OneCycleLR(optimizer, 0.2, total_steps=30)]

    return Planned(), loader(*blobs()), {"max_epochs": 10, "max_steps": -1}
