"""Train and eval mode, dropout, running statistics, metrics and graphs kept alive."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault
from .parts import Halves, cnn, images, line


def dropped(p: float = 0.3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(p), nn.Linear(32, 10))


@fault("WD504")
def backbone_loaded_in_eval_mode(fixed: bool) -> Run:
    module = Halves()
    module.backbone.train(fixed)
    return module, loader(*images()), {}


@fault("WD504")
def whole_module_in_eval_mode() -> Run:
    return Classifier(dropped()).eval(), loader(*blobs()), {}


@fault("WD504")
def preview_that_forgets_to_return_to_training(fixed: bool) -> Run:
    class Previews(Classifier):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            if self.global_step == 6:
                self.eval()
                with torch.no_grad():
                    self.net(batch[0])
                self.train(fixed)

    return Previews(dropped()), loader(*blobs()), {}


@fault("WD504")
def new_normalisation_held_in_eval_mode(fixed: bool) -> Run:
    class Held(Classifier):
        def on_train_epoch_start(self) -> None:
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d) and not fixed:
                    layer.eval()

    return Held(cnn()), loader(*images()), {}


@fault("WD504")
def statistics_frozen_without_pretrained_weights() -> Run:
    class Frozen(Halves):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            for layer in self.backbone.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
            return self

    return Frozen().train(), loader(*images()), {}


class Functional(nn.Module):
    """Dropout as a function."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.inlet, self.head, self.fixed = nn.Linear(20, 48), nn.Linear(48, 10), fixed

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.inlet(x))
        return self.head(F.dropout(h, 0.5, self.training) if self.fixed else F.dropout(h, 0.5))


@fault("WD505")
def dropout_in_evaluation(fixed: bool) -> Run:
    settings = {"validation": loader(*blobs(64), shuffle=False), "val_check_interval": 8}
    return Classifier(Functional(fixed)), loader(*blobs()), settings


@fault("WD505", also=("WD141",))
def keep_and_drop_confused(fixed: bool) -> Run:
    return Classifier(dropped(0.05 if fixed else 0.95)), loader(*blobs()), {}


@fault("WD505")
def dropout_behind_the_last_layer(fixed: bool) -> Run:
    last = [nn.Dropout(0.3), nn.Linear(32, 10)] if fixed else [nn.Linear(32, 10), nn.Dropout(0.3)]
    return Classifier(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), *last)), loader(*blobs()), {}


@fault("WD505")
def prediction_of_a_series_that_is_dropped() -> Run:
    class Forecast(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.smooth_l1_loss(F.dropout(self.net(batch[0]), 0.2).squeeze(-1), batch[1])

    x, y = line()
    return Forecast(nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))), loader(x, y), {}


@fault("WD507")
def one_accuracy_for_two_stages(fixed: bool) -> Run:
    class Shares(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.accuracy = MulticlassAccuracy(10)
            self.other = MulticlassAccuracy(10) if fixed else self.accuracy

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            self.accuracy.update(scores, batch[1])
            return self.loss(scores, batch[1])

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.other.update(self.net(batch[0]), batch[1])

        def on_validation_epoch_end(self) -> None:
            self.log("accuracy", self.other.compute())
            self.other.reset()

        def on_train_epoch_end(self) -> None:
            self.accuracy.reset()

    settings = {"validation": loader(*blobs(64)), "val_check_interval": 4}
    return Shares(), loader(*blobs()), settings


@fault("WD507")
def best_score_of_the_sanity_check() -> Run:
    class Best(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.mean = MeanMetric()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.mean.update(self.loss(self.net(batch[0]), batch[1]))

        def on_validation_epoch_end(self) -> None:
            self.log("best", self.mean.compute())

    settings = {"validation": loader(*blobs(64)), "num_sanity_val_steps": 2, "max_epochs": 2, "max_steps": -1}
    return Best(), loader(*blobs()), settings


@fault("WD508")
def running_statistics_that_hardly_move(fixed: bool) -> Run:
    net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32, momentum=0.1 if fixed else 1e-6), nn.ReLU())
    x, y = blobs()
    settings = {"validation": loader(3 * x + 1, y, shuffle=False), "val_check_interval": 8, "max_steps": 60}
    return Classifier(nn.Sequential(net, nn.Linear(32, 10))), loader(3 * x + 1, y), settings


@fault("WD509")
def losses_collected_with_their_graphs(fixed: bool) -> Run:
    class Collects(Classifier):
        def __init__(self) -> None:
            super().__init__(cnn())
            self.losses: list[Tensor] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.losses.append(loss.detach() if fixed else loss)
            return loss

    return Collects(), loader(*images()), {"max_steps": 60}


@fault("WD509")
def running_mean_of_the_loss_keeps_graphs() -> Run:
    class Smooths(Classifier):
        smooth: Any = 0.0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.smooth = 0.9 * self.smooth + 0.1 * loss
            return loss

    return Smooths(mlp()), loader(*blobs()), {"max_steps": 60}


@fault("WD504")
def teacher_that_learns_as_well(fixed: bool) -> Run:
    class Distils(Classifier):
        def __init__(self) -> None:
            super().__init__(lr=3e-3)
            self.teacher = dropped().eval().requires_grad_(not fixed)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            wanted = self.teacher(batch[0]).softmax(1)
            return F.kl_div(self.net(batch[0]).log_softmax(1), wanted, reduction="batchmean")

    return Distils(), loader(*blobs()), {}


@fault("WD508")
def teacher_that_forgets_its_buffers(fixed: bool) -> Run:
    class Averaged(Classifier):
        def __init__(self) -> None:
            super().__init__(
                nn.Sequential(nn.Linear(20, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10)), lr=3e-3
            )
            self.teacher = copy.deepcopy(self.net).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            wanted = self.teacher.eval()(x + 0.1 * torch.randn_like(x)).softmax(1)
            scores = self.net(x)
            return F.cross_entropy(scores, y) + 0.1 * F.cross_entropy(scores, wanted)

        def on_train_batch_end(self, *_: Any) -> None:
            with torch.no_grad():
                for mean, p in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
                    mean.lerp_(p, 0.1)
                if fixed:
                    for mean, b in zip(self.teacher.buffers(), self.net.buffers(), strict=True):
                        mean.copy_(b)

    return Averaged(), loader(*blobs()), {"max_steps": 60}


def normalised() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 10))


class Averages(Classifier):
    """Validates an average of its network, which begins as the copy of it."""

    def __init__(self, buffers: bool, frozen: bool = False) -> None:
        super().__init__(normalised(), lr=3e-3)
        self.average = copy.deepcopy(self.net)
        self.buffers_too, self.frozen = buffers, frozen

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.frozen:
            self.net[1].eval()
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, *_: Any) -> None:
        with torch.no_grad():
            for mean, p in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(p, 0.1)
            if self.buffers_too:
                for mean, b in zip(self.average.buffers(), self.net.buffers(), strict=True):
                    mean.copy_(b)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(self.average(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.net.parameters(), 3e-3)


@fault("WD508")
def average_for_validation_that_forgets_its_buffers(fixed: bool) -> Run:
    return Averages(buffers=fixed), loader(*blobs()), {"max_steps": 60, "validation": loader(*blobs())}


@fault("WD508")
def validation_that_trains(fixed: bool) -> Run:
    class Trains(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if not fixed:
                self.train()
            super().validation_step(batch, batch_idx)

    return Trains(normalised(), lr=3e-3), loader(*blobs()), {"validation": loader(*blobs(), shuffle=False)}


@fault("WD508")
def evaluation_left_before_it_is_done(fixed: bool) -> Run:
    class Leaves(Classifier):
        def score(self, batch: Any) -> None:
            self.eval()
            self.loss(self.net(batch[0]), batch[1])
            self.train()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.score(batch)
            if not fixed:
                self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    return Leaves(normalised(), lr=3e-3), loader(*blobs()), {"validation": loader(*blobs(), shuffle=False)}
