"""Loops, schedules and graphs that undo the training."""

import math
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
from .parts import Halves, cnn, deep, images, line


@fault("WD311")
def thawed_without_telling_the_optimizer() -> Run:
    class Thaws(Halves):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 24))
            self.backbone.requires_grad_(False)

        def on_train_start(self) -> None:
            self.backbone.requires_grad_(True)

        def configure_optimizers(self) -> Any:
            return Adam([p for p in self.parameters() if p.requires_grad], 3e-3)

    return Thaws(), loader(*blobs()), {}


@fault("WD109", "WD315", raises="RuntimeError")
def everything_frozen() -> Run:
    class Frozen(Classifier):
        def on_train_start(self) -> None:
            self.freeze()

    return Frozen(), loader(*blobs()), {}


@fault("WD109", raises="RuntimeError")
def gradients_switched_off_by_a_preview() -> Run:
    class Previews(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            torch.set_grad_enabled(False)
            self.net(batch[0][:2])
            return super().training_step(batch, batch_idx)

    return Previews(), loader(*blobs()), {}


@fault("WD506", "WD316")
def player_whose_step_was_forgotten(fixed: bool) -> Run:
    class Game(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(8, 2))
            self.automatic_optimization = False
            self.critic = mlp(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, critic = self.optimizers()
            made, bce = self.net(torch.randn(len(batch[0]), 8)), F.binary_cross_entropy_with_logits
            one, zero = torch.ones(len(made), 1), torch.zeros(len(made), 1)
            critic.zero_grad()
            self.manual_backward(bce(self.critic(batch[0]), one) + bce(self.critic(made.detach()), zero))
            critic.step()
            player.zero_grad()
            self.manual_backward(bce(self.critic(made), one))
            if fixed:
                player.step()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3), Adam(self.critic.parameters(), 1e-3)

    return Game(), loader(torch.randn(512, 2) + 1), {"max_steps": 60}


class Planned(Classifier):
    """A schedule that Lightning advances at each ``interval``."""

    def __init__(self, schedule: Callable[[Any], Any], interval: str) -> None:
        super().__init__(lr=3e-3)
        self.schedule, self.interval = schedule, interval

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [{"scheduler": self.schedule(optimizer), "interval": self.interval}]


@fault("WD501", also=("WD316", "WD141"))
def decay_that_ends_too_early(fixed: bool) -> Run:
    linear = lambda o: lrs.LinearLR(o, 1.0, 0.0, total_iters=200 if fixed else 6)  # noqa: E731
    return Planned(linear, "step"), loader(*blobs()), {}


@fault("WD501", also=("WD316", "WD141"))
def decay_of_each_epoch_at_each_step(fixed: bool) -> Run:
    module = Planned(lambda o: lrs.ExponentialLR(o, 0.8), "epoch" if fixed else "step")
    return module, loader(*blobs()), {"max_steps": 96}


class Scheduled(Manual):
    """Manual optimisation with a cosine, advanced where ``due`` says so."""

    def __init__(self, due: Callable[[L.LightningModule], bool], schedule: Any = None) -> None:
        super().__init__(lr=3e-3)
        self.due, self.schedule = due, schedule or (lambda o: lrs.CosineAnnealingLR(o, 90))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        if self.due(self):
            schedule: Any = self.lr_schedulers()
            schedule.step(1.0) if isinstance(schedule, lrs.ReduceLROnPlateau) else schedule.step()

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [self.schedule(optimizer)]


@fault("WD503")
def schedule_that_nobody_advances(fixed: bool) -> Run:
    return Scheduled(lambda module: fixed), loader(*blobs()), {"max_steps": 80}


@fault("WD502", also=("WD316", "WD141"))
def cosine_over_epochs_at_each_step(fixed: bool) -> Run:
    module = Planned(lambda o: lrs.CosineAnnealingLR(o, 5), "epoch" if fixed else "step")
    return module, loader(*blobs()), {"max_epochs": 5}


@fault("WD502", also=("WD316", "WD141"))
def cosine_by_hand_over_epochs_at_each_step(fixed: bool) -> Run:
    cosine = lambda o: lrs.LambdaLR(o, lambda s: 0.5 * (1 + math.cos(math.pi * s / 6)))  # noqa: E731
    return Planned(cosine, "epoch" if fixed else "step"), loader(*blobs()), {"max_epochs": 6, "max_steps": -1}


@fault("WD502", also=("WD316", "WD141", "WD501"))
def warm_up_and_decay_over_epochs_at_each_step(fixed: bool) -> Run:
    def both(o: Any) -> Any:
        return lrs.SequentialLR(o, [lrs.LinearLR(o, 0.1, 1.0, 2), lrs.PolynomialLR(o, 8)], [2])

    return Planned(both, "epoch" if fixed else "step"), loader(*blobs(320)), {"max_epochs": 10, "max_steps": -1}


@fault("WD316", also=("WD141", "WD205"))
def weight_of_the_loss_far_too_small() -> Run:
    return Classifier(loss=lambda z, y: 1e-9 * F.cross_entropy(z, y), optimizer=SGD, lr=0.1), loader(*blobs()), {}


@fault("WD318")
def decay_inside_adam() -> Run:
    return Classifier(optimizer=Adam, weight_decay=10.0), loader(*blobs()), {}


@fault("WD144", "WD142", "WD317", also=("WD213", "WD143", "WD211", "WD303"))
def regression_with_too_large_a_rate(fixed: bool) -> Run:
    x, y = line()
    net = nn.Sequential(nn.Linear(12, 1), nn.Flatten(0))
    return Classifier(net, F.mse_loss, SGD, lr=0.05 if fixed else 3.0), loader(x, y), {}


@fault("WD314")
def first_half_under_no_grad(fixed: bool) -> Run:
    class Halved(Halves):
        def features(self, x: Tensor) -> Tensor:
            with torch.set_grad_enabled(fixed):
                return super().features(x)

    return Halved(), loader(*images()), {}


@fault("WD314")
def detached_for_more_than_the_first_steps(fixed: bool) -> Run:
    class Warming(Halves):
        def features(self, x: Tensor) -> Tensor:
            seen = super().features(x)
            return seen.detach() if (self.global_step < 10 if fixed else self.global_step >= 0) else seen

    return Warming(), loader(*images()), {}


@fault("WD314")
def values_taken_by_data(fixed: bool) -> Run:
    class Taken(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h = self.net[0](batch[0])
            return self.loss(self.net[1](h if fixed else h.data), batch[1])

    return Taken(nn.Sequential(deep(2, k=48), nn.Linear(48, 10))), loader(*blobs()), {}


@fault("WD505")
def everything_dropped() -> Run:
    return (
        Classifier(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(1.0), nn.Linear(32, 10))),
        loader(*blobs()),
        {},
    )


@fault("WD204", also=("WD207",))
def small_steps_in_fp16_weights() -> Run:
    return Classifier(optimizer=SGD, lr=1e-5), loader(*blobs()), {"precision": "16-true"}


@fault("WD320", "WD316", first=("WD320",))
def student_overwritten_by_its_average() -> Run:
    class Averages(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.slow = mlp().requires_grad_(False)
            self.slow.load_state_dict(self.net.state_dict())

        def on_train_batch_end(self, *_: Any) -> None:
            self.net.load_state_dict(self.slow.state_dict())

    return Averages(), loader(*blobs()), {}


@fault("WD316", "WD501", "WD502", also=("WD141",))
def plateau_that_reduces_in_every_step() -> Run:
    class Plateau(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-3)
            schedule = lrs.ReduceLROnPlateau(optimizer, mode="max", factor=0.1, patience=0, min_lr=0, eps=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step", "monitor": "loss"},
            }

    return Plateau(), loader(*blobs()), {}


@fault("WD320")
def average_copied_back_after_every_step(fixed: bool) -> Run:
    class Averages(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.slow = mlp().requires_grad_(False)
            self.slow.load_state_dict(self.net.state_dict())

        @torch.no_grad()
        def on_train_batch_end(self, *_: Any) -> None:
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 1e-3)
                if not fixed:
                    fast.copy_(slow)

    return Averages(), loader(*blobs()), {}


@fault("WD320")
def average_left_in_place_after_validation(fixed: bool) -> Run:
    class Averages(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.slow = mlp().requires_grad_(False)
            self.slow.load_state_dict(self.net.state_dict())

        @torch.no_grad()
        def on_train_batch_end(self, *_: Any) -> None:
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.02)

        def on_validation_start(self) -> None:
            trained = self.net.state_dict()
            self.trained = {n: v.clone() for n, v in trained.items()} if fixed else trained
            self.net.load_state_dict(self.slow.state_dict())

        def on_validation_end(self) -> None:
            self.net.load_state_dict(self.trained)

    return Averages(), loader(*blobs(320)), {"validation": loader(*blobs(64))}


@fault("WD320")
def layers_initialised_in_every_epoch(fixed: bool) -> Run:
    class Resets(Classifier):
        def on_train_epoch_start(self) -> None:
            for part in self.net.modules():
                if hasattr(part, "reset_parameters") and not (fixed and self.current_epoch):
                    part.reset_parameters()

    return Resets(cnn()), loader(*images()), {}


@fault("WD320")
def pretrained_weights_loaded_with_the_first_batch(fixed: bool) -> Run:
    class Loads(Manual):
        def on_fit_start(self) -> None:
            self.pretrained = {n: v.clone() for n, v in self.net.state_dict().items()}

        def training_step(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0 and not (fixed and self.current_epoch):
                self.net.load_state_dict(self.pretrained)
            super().training_step(batch, batch_idx)

    return Loads(), loader(*blobs(1280)), {"max_steps": 160}


@fault("WD316")
def plateau_of_a_rising_measure_in_every_step(fixed: bool) -> Run:
    class Plateau(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-3)
            schedule = lrs.ReduceLROnPlateau(optimizer, mode="min" if fixed else "max", patience=20 if fixed else 0)
            plan = {"scheduler": schedule, "interval": "step", "monitor": "loss"}
            return {"optimizer": optimizer, "lr_scheduler": plan}

    return Plateau(), loader(*blobs(1024)), {"max_steps": 120}


@fault("WD502", "WD316")
def decay_per_epoch_applied_to_steps(fixed: bool) -> Run:
    class Decays(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            schedule = lrs.LambdaLR(optimizer, lambda s: max(0.2**s, 1e-7))
            return [optimizer], [{"scheduler": schedule, "interval": "epoch" if fixed else "step"}]

    return Decays(), loader(*blobs(1024)), {"max_steps": 120}


@fault("WD216", also=("WD213", "WD143", "WD144", "WD317"))
def hook_that_keeps_gradients() -> Run:
    class Keeps(Classifier):
        def optimizer_zero_grad(self, *_: Any) -> None:
            pass

    return Keeps(optimizer=SGD, lr=0.02), loader(*blobs()), {}


@fault("WD213", "WD317", "WD144", "WD142", "WD101", also=("WD211", "WD303", "WD143", "WD214"))
def residuals_that_double_at_each_layer() -> Run:
    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 32), nn.Linear(32, 10)
            self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(16))

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            for block in self.blocks:
                h = 2 * h + torch.relu(block(h))
            return self.head(h)

    return Classifier(Doubles(), optimizer=SGD, lr=1e-2), loader(*blobs()), {}


@fault("WD509")
def every_output_kept_for_the_end_of_the_epoch() -> Run:
    class Keeps(Classifier):
        def on_train_epoch_start(self) -> None:
            self.kept: list[Any] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            self.kept.append({"scores": scores, "labels": batch[1]})
            return self.loss(scores, batch[1])

    return Keeps(), loader(*blobs(2048)), {"max_steps": 60}


@fault("WD512")
def divided_by_the_accumulation_by_hand(fixed: bool) -> Run:
    module = Classifier(loss=lambda z, y: F.cross_entropy(z, y) / (1 if fixed else 4), optimizer=SGD, lr=0.2)
    return module, loader(*blobs(512)), {"accumulate_grad_batches": 4}


@fault("WD512")
def two_losses_divided_by_hand() -> Run:
    class Two(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            loss = F.cross_entropy(scores, batch[1], label_smoothing=0.1) + F.mse_loss(scores.mean(1), batch[0][:, 0])
            return loss / self.trainer.accumulate_grad_batches

    return Two(lr=3e-3), loader(*blobs(512)), {"accumulate_grad_batches": 3, "gradient_clip_val": 1.0}


@fault("WD512")
def loss_and_penalty_divided_by_hand(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        total = F.cross_entropy(z, y) + 0.01 * z.square().mean()
        return total if fixed else total / 4

    return Classifier(loss=loss, optimizer=SGD, lr=0.2), loader(*blobs(512)), {"accumulate_grad_batches": 4}


@fault("WD512")
def each_of_two_terms_divided(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        k = 1 if fixed else 4
        return F.cross_entropy(z, y) / k + 0.1 * F.mse_loss(z.softmax(1), F.one_hot(y, 10).float()) / k

    return Classifier(loss=loss, optimizer=SGD, lr=0.2), loader(*blobs(512)), {"accumulate_grad_batches": 4}


@fault("WD512")
def divided_by_an_accumulation_that_grows(fixed: bool) -> Run:
    class Grows(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss if fixed else loss / self.trainer.accumulate_grad_batches

    settings = {"callbacks": [GradientAccumulationScheduler({2: 4})], "max_epochs": 6, "max_steps": -1}
    return Grows(optimizer=SGD, lr=0.2), loader(*blobs(512)), settings


@fault("WD502", also=("WD316", "WD141", "WD501"))
def milestones_of_epochs_at_each_step(fixed: bool) -> Run:
    module = Planned(lambda o: lrs.MultiStepLR(o, [3, 6, 8]), "epoch" if fixed else "step")
    return module, loader(*blobs()), {"max_epochs": 10, "max_steps": -1}


@fault("WD502", also=("WD316", "WD141", "WD501"))
def decay_every_two_epochs_at_each_step(fixed: bool) -> Run:
    module = Planned(lambda o: lrs.StepLR(o, 2, 0.5), "epoch" if fixed else "step")
    return module, loader(*blobs()), {"max_epochs": 10, "max_steps": -1}
