"""Healthy runs with optimizers, callbacks and loaders beyond the common ones."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
)
from torch import Tensor, nn
from torch.optim import ASGD, SGD, Adadelta, Adafactor, Adagrad, Adam, AdamW, NAdam, RAdam, RMSprop, Rprop
from torch.optim import lr_scheduler as lrs
from torch.utils.data import IterableDataset

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import Halves, Recurrent, SequenceEncoder, cnn, images, tones


@healthy
def adafactor() -> Run:
    return Classifier(SequenceEncoder(), optimizer=Adafactor, lr=1e-2), loader(*tones()), {}


@healthy
def nesterov_adam() -> Run:
    return Classifier(cnn(), optimizer=NAdam, lr=2e-3), loader(*images()), {}


@healthy
def rectified_adam_in_amsgrad_style() -> Run:
    class Two(Halves):
        def configure_optimizers(self) -> Any:
            return RAdam([{"params": self.backbone.parameters()}, {"params": self.head.parameters(), "lr": 1e-2}], 3e-3)

    return Two(nn.Linear(20, 24)), loader(*blobs()), {}


@healthy
def adagrad_on_a_wide_network() -> Run:
    return Classifier(mlp(width=128), optimizer=Adagrad, lr=1e-2), loader(*blobs()), {}


@healthy
def adadelta_with_its_rate_of_one() -> Run:
    return Classifier(mlp(width=64), optimizer=Adadelta, lr=1.0), loader(*blobs()), {}


@healthy
def resilient_full_batches() -> Run:
    return Classifier(optimizer=Rprop, lr=1e-3), loader(*blobs(256), batch_size=256), {}


@healthy
def averaged_descent() -> Run:
    return Classifier(optimizer=ASGD, lr=0.05), loader(*blobs()), {}


@healthy
def root_mean_square_with_a_large_epsilon() -> Run:
    return Classifier(cnn(), optimizer=RMSprop, lr=0.02, eps=1.0, momentum=0.9), loader(*images()), {}


@healthy
def signs_of_momentum() -> Run:
    class Lion(torch.optim.Optimizer):
        def __init__(self, values: Any, lr: float) -> None:
            super().__init__(values, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            with torch.enable_grad():
                loss = closure() if closure else None
            for group in self.param_groups:
                for value in group["params"]:
                    if value.grad is None:
                        continue
                    mean = self.state[value].setdefault("mean", torch.zeros_like(value))
                    value.mul_(1 - group["lr"] * group["weight_decay"])
                    value.sub_(group["lr"] * (0.9 * mean + 0.1 * value.grad).sign())
                    mean.lerp_(value.grad, 0.01)
            return loss

    return Classifier(optimizer=Lion, lr=1e-3), loader(*blobs()), {}


@healthy
def slow_weights_every_few_steps() -> Run:
    class Looks(Classifier):
        def on_fit_start(self) -> None:
            self.slow = [p.detach().clone() for p in self.net.parameters()]

        def on_train_batch_end(self, *_: Any) -> None:
            if self.global_step % 5 == 0:
                with torch.no_grad():
                    for slow, quick in zip(self.slow, self.net.parameters(), strict=True):
                        slow.lerp_(quick, 0.5)
                        quick.copy_(slow)

    return Looks(lr=3e-3), loader(*blobs()), {}


@healthy
def stream_without_a_length() -> Run:
    class Stream(IterableDataset[Any]):
        def __init__(self) -> None:
            self.centres = 2 * torch.randn(10, 20)

        def __iter__(self) -> Iterator[Any]:
            while True:
                y = int(torch.randint(0, 10, ()))
                yield (self.centres[y] + torch.randn(20)) / 2.2, y

    return Classifier(lr=3e-3), torch.utils.data.DataLoader(Stream(), 32), {"max_epochs": -1}


@healthy
def stopped_early_with_checkpoints() -> Run:
    class Scores(Classifier):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("score", self.loss(self.net(batch[0]), batch[1]), add_dataloader_idx=False)

    callbacks = [EarlyStopping("score", patience=2), ModelCheckpoint(monitor="score")]
    settings = {"callbacks": callbacks, "enable_checkpointing": True, "max_epochs": 4, "max_steps": -1}
    settings |= {"validation": loader(*blobs(64), shuffle=False), "num_sanity_val_steps": 2}
    return Scores(lr=3e-3), loader(*blobs()), settings


@healthy
def accumulation_that_grows() -> Run:
    callbacks = [GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})]
    return Classifier(lr=3e-3), loader(*blobs(512)), {"callbacks": callbacks, "max_epochs": 4, "max_steps": -1}


@healthy
def warm_up_then_cosine_to_zero() -> Run:
    class Course(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3, weight_decay=0.05)
            parts = [lrs.LinearLR(optimizer, 1e-3, total_iters=8), lrs.CosineAnnealingLR(optimizer, 32)]
            schedule = {"scheduler": lrs.SequentialLR(optimizer, parts, [8]), "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    return Course(SequenceEncoder(dropout=0.1)), loader(*tones()), {}


@healthy
def warm_restarts_by_epoch() -> Run:
    class Restarts(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.05, momentum=0.9, nesterov=True)
            return [optimizer], [lrs.CosineAnnealingWarmRestarts(optimizer, 2)]

    return Restarts(cnn()), loader(*images()), {"max_epochs": 4, "max_steps": -1}


@healthy
def rate_set_by_hand() -> Run:
    class Sets(Classifier):
        def on_train_batch_start(self, *_: Any) -> None:
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = 3e-3 * min(1.0, (self.global_step + 1) / 10)

    return Sets(), loader(*blobs()), {}


@healthy
def schedule_stepped_by_hand() -> Run:
    class Steps(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            self.lr_schedulers().step()

        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            return [optimizer], [lrs.OneCycleLR(optimizer, 1e-2, total_steps=200)]

    return Steps(), loader(*blobs()), {}


@healthy
def weights_in_bf16_with_large_steps() -> Run:
    return Classifier(mlp(width=64), optimizer=SGD, lr=0.1), loader(*blobs()), {"precision": "bf16-true"}


@healthy
def everything_in_float64() -> Run:
    x, y = blobs()
    return Classifier(Recurrent(20, 10)), loader(x[:, None].double(), y), {"precision": "64-true"}


@healthy
def cumulative_batch_norm() -> Run:
    net = nn.Sequential(nn.Linear(20, 48), nn.BatchNorm1d(48, momentum=None), nn.ReLU(), nn.Linear(48, 10))
    settings = {"validation": loader(*blobs(64)), "val_check_interval": 4}
    return Classifier(net, lr=3e-3), loader(*blobs()), settings


@healthy
def instance_norm_and_strong_dropout() -> Run:
    body = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.InstanceNorm2d(24, affine=True), nn.ReLU(), nn.Flatten())
    return Classifier(nn.Sequential(body, nn.Dropout(0.8), nn.Linear(864, 10)), lr=3e-3), loader(*images()), {}


@healthy
def biases_before_batch_norm() -> Run:
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(144, 10)
    )
    return Classifier(net, optimizer=Adam), loader(*images()), {}


@healthy
def standardised_convolutions() -> Run:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            w = self.weight
            w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) * 5 + 1e-5)
            return self._conv_forward(x, w, self.bias)

    body = nn.Sequential(Standardised(3, 24, 3, 2, 1), nn.GroupNorm(4, 24), nn.SiLU(), nn.AdaptiveAvgPool2d(2))
    return Classifier(nn.Sequential(body, nn.Flatten(), nn.Linear(96, 10))), loader(*images()), {}


@healthy
def a_second_fit_of_the_same_module() -> Run:
    class Again(Classifier):
        def __init__(self) -> None:
            super().__init__(lr=3e-3)
            x, y = blobs(320)
            optimizer = Adam(self.net.parameters(), 3e-3)
            for i in range(0, 320, 32):
                optimizer.zero_grad()
                self.loss(self.net(x[i : i + 32]), y[i : i + 32]).backward()
                optimizer.step()
            self.known = x, y

    module = Again()
    return module, loader(*module.known), {}


@healthy
def noise_on_gradients() -> Run:
    class Private(Classifier):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            for value in self.parameters():
                value.grad.add_(0.01 * torch.randn_like(value))

    return Private(optimizer=SGD, lr=0.1), loader(*blobs()), {}


@healthy
def one_condition_for_all_samples_beside_their_data() -> Run:
    class Conditioned(Classifier):
        def __init__(self) -> None:
            super().__init__(lr=3e-3)
            self.domain = nn.Embedding(4, 20)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, domain, y = batch
            return self.loss(self.net(x + self.domain(domain)), y)

    x, y = blobs()
    return Conditioned(), loader(x, torch.full_like(y, 2), y), {}


@healthy
def quiet_signals_into_batch_normalisation() -> Run:
    x, y = blobs()
    net = nn.Sequential(nn.Linear(20, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
    return Classifier(net, lr=1e-3), loader(5e-3 * x, y), {"max_steps": 120}
