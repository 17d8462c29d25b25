"""Losses that get something other than they are defined for: the run goes on, and learns little or nothing.

    python examples/loss_inputs.py --fault softmax-twice      the alert, ranked first: WD102
    python examples/loss_inputs.py --fixed softmax-twice      its hint applied: quiet

Without arguments the run is healthy; `--help` lists the faults.
"""

import copy

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from common import Case, ask, batches, digits, fit, seeded
from sanity_watchdog import SanityWatchdog

FAULTS = {
    "softmax-twice": ("WD102", "softmax in front of cross_entropy, which applies one itself"),
    "scores-to-nll": ("WD103", "raw scores given to nll_loss, which wants log-probabilities"),
    "column-meets-row": ("WD104", "predictions (n, 1) against targets (n,): all pairs are compared"),
    "relu-on-scores": ("WD107", "a ReLU after the last layer: scores below zero do not exist"),
    "flipped-sign": ("WD108", "the log-likelihood is minimised instead of its negative"),
    "teacher-is-student": ("WD114", "self.teacher = self.net: a second name for the network, not a copy of it"),
    "no-stop-gradient": ("WD115", "two views are pulled together, and both sides get gradients"),
    "detached-loss": ("WD109", "the loss is rebuilt from a number, so no gradient can flow"),
}


class Classifier(L.LightningModule):
    """Digits, ten classes."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        if case.broken("relu-on-scores"):
            self.net.append(nn.ReLU())
        self.predict = nn.Identity()
        if case.about("no-stop-gradient"):
            self.predict = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))
        if case.about("teacher-is-student"):
            self.teacher = (
                self.net if case.broken("teacher-is-student") else copy.deepcopy(self.net).requires_grad_(False)
            )

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        scores = self.net(images)
        if self.case.about("no-stop-gradient"):
            other = self.net(images + 0.3 * torch.randn_like(images))
            other = other if self.case.broken("no-stop-gradient") else other.detach()
            return -F.cosine_similarity(self.predict(scores), other).mean()
        if self.case.broken("softmax-twice"):
            return F.cross_entropy(scores.softmax(-1), labels)
        if self.case.about("scores-to-nll"):
            return F.nll_loss(scores if self.case.broken("scores-to-nll") else scores.log_softmax(-1), labels)
        if self.case.broken("flipped-sign"):
            return -F.cross_entropy(scores, labels)
        if self.case.broken("detached-loss"):
            return torch.tensor(F.cross_entropy(scores, labels).item(), requires_grad=True)
        if self.case.about("teacher-is-student"):
            with torch.no_grad():
                wanted = self.teacher(images).softmax(-1)
            return F.cross_entropy(scores, labels) + F.kl_div(scores.log_softmax(-1), wanted, reduction="batchmean")
        return F.cross_entropy(scores, labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        trained = [*self.net.parameters(), *self.predict.parameters()]
        return torch.optim.AdamW(trained, lr=3e-3)


class Regressor(L.LightningModule):
    """Diabetes: a number from ten measurements."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        features, target = batch
        predicted = self.net(features)
        return F.mse_loss(predicted if self.case.broken("column-meets-row") else predicted.squeeze(1), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def diabetes() -> tuple[Tensor, Tensor]:
    """Ten features (n, 10) and a target (n,), both standardised."""
    x, y = (torch.tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True))
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def main(argv: list[str] | None = None) -> SanityWatchdog:
    """Train; returns the watchdog."""
    case = ask(argv, __doc__, FAULTS)
    seeded()
    if case.about("column-meets-row"):
        return fit(case, Regressor(case), batches(*diabetes()))
    return fit(case, Classifier(case), batches(*digits()), max_steps=60 if case.about("teacher-is-student") else 30)


if __name__ == "__main__":
    main()
