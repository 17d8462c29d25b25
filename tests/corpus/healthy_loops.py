"""Healthy loops that move weights, optimizers and rates in ways of their own."""

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .loops import Scheduled
from .modes import normalised


class _Reaches(L.Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= 60


@healthy
def start_of_a_very_long_warm_up() -> Run:
    class Warm(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-5)
            schedule = lrs.LambdaLR(optimizer, lambda s: min(1.0, s / 10_000))
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    return Warm(), loader(*blobs()), {"max_steps": -1, "max_epochs": 5_000, "callbacks": [_Reaches()]}


@healthy
def first_steps_of_an_inverse_root_schedule() -> Run:
    class Warm(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 0.0442)
            schedule = lrs.LambdaLR(optimizer, lambda s: min((s + 1) ** -0.5, (s + 1) * 4000**-1.5))
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    return Warm(), loader(*blobs()), {}


class _WoundBack(Classifier):
    """Keeps the initial weights."""

    def on_fit_start(self) -> None:
        self.initial = {n: v.detach().clone() for n, v in self.net.named_parameters()}


@healthy
def wound_back_once() -> Run:
    class Once(_WoundBack):
        @torch.no_grad()
        def on_train_epoch_start(self) -> None:
            for name, p in self.net.named_parameters() if self.current_epoch == 2 else ():
                p.copy_(self.initial[name])

    return Once(), loader(*blobs()), {}


@healthy
def outer_steps_over_inner_ones() -> Run:
    class Reptile(_WoundBack):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if batch_idx % 4 == 0:
                self.initial = {n: v.detach().clone() for n, v in self.net.named_parameters()}

        @torch.no_grad()
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            for name, p in self.net.named_parameters() if batch_idx % 4 == 3 else ():
                p.copy_(self.initial[name].lerp(p, 0.25))

    return Reptile(), loader(*blobs()), {}


@healthy
def averaged_by_lightning() -> Run:
    return Classifier(lr=3e-3), loader(*blobs()), {"callbacks": [EMAWeightAveraging(decay=0.99)]}


@healthy
def initialised_when_training_starts() -> Run:
    class Initialises(Classifier):
        def on_train_start(self) -> None:
            for part in self.net:
                if isinstance(part, nn.Linear):
                    nn.init.kaiming_uniform_(part.weight)
                    nn.init.zeros_(part.bias)

    return Initialises(), loader(*blobs()), {}


@healthy
def one_optimizer_after_another() -> Run:
    class Changes(Classifier):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 2:
                self.trainer.optimizers = [SGD(self.parameters(), 1e-2, momentum=0.9)]

    return Changes(), loader(*blobs()), {}


@healthy
def inner_optimizers_and_an_outer_one() -> Run:
    class Inner(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            inner = Adam(self.net.parameters(), 1e-3)
            inner.zero_grad()
            self.loss(self.net(batch[0]), batch[1]).backward()
            inner.step()
            if batch_idx % 4 == 3:
                super().training_step(batch, batch_idx)

    return Inner(), loader(*blobs(640)), {"max_epochs": 4, "max_steps": -1}


@healthy
def schedule_advanced_by_hand_at_the_end_of_each_epoch() -> Run:
    def due(module: L.LightningModule) -> bool:
        return module.trainer.is_last_batch

    return Scheduled(due, lambda o: lrs.StepLR(o, 4, 0.5)), loader(*blobs()), {"max_steps": 80}


@healthy
def plateau_that_waits_for_its_metric_in_manual_optimisation() -> Run:
    return Scheduled(lambda module: False, lrs.ReduceLROnPlateau), loader(*blobs()), {"max_steps": 80}


@healthy
def one_epoch_of_a_schedule_by_epochs_in_manual_optimisation() -> Run:
    def due(module: L.LightningModule) -> bool:
        return module.trainer.is_last_batch and module.current_epoch > 0

    return Scheduled(due), loader(*blobs(2560)), {"max_epochs": 1, "max_steps": -1}


class TwoOptimizers(Classifier):
    """Two optimizers in manual optimisation, of which ``turn`` gives those that step in a batch."""

    def __init__(self, build: Any, turn: Any) -> None:
        super().__init__()
        self.build, self.turn, self.automatic_optimization = build, turn, False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for i in self.turn(self, batch_idx):
            optimizer: Any = self.optimizers()[i]
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return self.build(self)


@healthy
def the_head_alone_in_every_other_batch() -> Run:
    def build(module: Any) -> Any:
        return [Adam(module.parameters(), 3e-3), Adam(module.net[2].parameters(), 3e-3)]

    return TwoOptimizers(build, lambda module, i: [i % 2]), loader(*blobs()), {}


@healthy
def two_optimizers_of_the_same_parameters() -> Run:
    def build(module: Any) -> Any:
        return [Adam(module.parameters(), 3e-3), SGD(module.parameters(), 1e-2)]

    return TwoOptimizers(build, lambda module, i: [0, 1]), loader(*blobs()), {}


@healthy
def shared_body_in_the_optimizers_of_two_heads() -> Run:
    class Heads(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.body, self.head, self.critic = nn.Linear(20, 32), nn.Linear(32, 10), nn.Linear(32, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            first, second = self.optimizers()
            self.update(first, nn.functional.cross_entropy(self.head(self.body(x).relu()), y))
            error = self.critic(self.body(x).relu()).squeeze(1) - y / 5 + 1
            self.update(second, error.square().mean())

        def update(self, optimizer: Any, loss: Any) -> None:
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

        def configure_optimizers(self) -> Any:
            shared = list(self.body.parameters())
            return [Adam([*shared, *head.parameters()], 1e-3) for head in (self.head, self.critic)]

    return Heads(), loader(*blobs()), {}


class _JoinsLater(Manual):
    """A generator that trains alone on pairs at first; its critic joins in with the third epoch."""

    def __init__(self, clears: bool) -> None:
        super().__init__(nn.Linear(20, 20))
        self.critic, self.clears = mlp(k=1), clears

    def training_step(self, batch: Any, batch_idx: int) -> None:
        maker, critic = self.optimizers()
        made = self.net(batch[0])
        if self.clears:
            critic.zero_grad()
        maker.zero_grad()
        self.manual_backward((made - batch[1]).square().mean() - 0.1 * self.critic(made).mean())
        maker.step()
        if self.current_epoch >= 2:
            critic.zero_grad()
            scores = self.critic(torch.cat([batch[1], made.detach()]))
            real = (torch.arange(len(scores)) < len(made)).float()[:, None]
            self.manual_backward(nn.functional.binary_cross_entropy_with_logits(scores, real))
            critic.step()

    def configure_optimizers(self) -> Any:
        return Adam(self.net.parameters(), 1e-3), Adam(self.critic.parameters(), 1e-3)


@healthy
def critic_that_joins_in_later() -> Run:
    x = torch.randn(640, 20)
    return _JoinsLater(clears=False), loader(x, x.flip(1)), {"max_epochs": 6, "max_steps": -1}


@healthy
def critic_cleared_before_it_joins_in() -> Run:
    x = torch.randn(640, 20)
    return _JoinsLater(clears=True), loader(x, x.flip(1)), {"max_epochs": 6, "max_steps": -1}


@healthy
def trial_of_a_critic_that_joins_in_later() -> Run:
    x = torch.randn(640, 20)
    return _JoinsLater(clears=False), loader(x, x.flip(1)), {"max_epochs": 1, "max_steps": -1}


class Clips(Manual):
    """Clips by hand, as ``step`` does it."""

    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step = step

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.step(self, self.optimizers(), self.loss(self.net(batch[0]), batch[1]), batch_idx)


@healthy
def clipped_by_hand_and_cleared_at_the_end() -> Run:
    def step(module: Any, optimizer: Any, loss: Any, i: int) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return Clips(step), loader(*blobs()), {}


@healthy
def clipped_by_hand_after_several_batches() -> Run:
    def step(module: Any, optimizer: Any, loss: Any, i: int) -> None:
        module.manual_backward(loss / 4)
        if i % 4 == 3:
            nn.utils.clip_grad_norm_(list(module.parameters()), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    return Clips(step), loader(*blobs(512)), {}


@healthy
def step_of_the_batch_before_at_the_beginning_of_the_next() -> Run:
    class Delayed(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            if batch_idx:
                nn.utils.clip_grad_norm_(self.parameters(), 1.0)
                optimizer.step()
            optimizer.zero_grad()
            self.manual_backward(Classifier.training_step(self, batch, batch_idx))

    return Delayed(), loader(*blobs(2048)), {}


@healthy
def norm_of_the_last_gradients_logged_in_the_step() -> Run:
    class Logs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("norm", nn.utils.clip_grad_norm_(self.parameters(), float("inf")))
            return super().training_step(batch, batch_idx)

    return Logs(), loader(*blobs()), {}


@healthy
def norm_measured_by_a_limit_out_of_reach() -> Run:
    class Measures(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("norm", nn.utils.clip_grad_norm_(self.parameters(), 1e9))
            return super().training_step(batch, batch_idx)

    return Measures(), loader(*blobs()), {}


@healthy
def clipped_in_a_hook_of_its_own() -> Run:
    class Hooks(Classifier):
        def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
            self.clip_gradients(optimizer, 0.5, "norm")

    return Hooks(), loader(*blobs()), {}


@healthy
def two_optimizers_clipped_one_after_the_other() -> Run:
    class Two(TwoOptimizers):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            for part, optimizer in zip((self.net[0], self.net[2]), self.optimizers(), strict=True):
                optimizer.zero_grad()
                self.manual_backward(self.loss(self.net(batch[0]), batch[1]))
                nn.utils.clip_grad_norm_(part.parameters(), 1.0)
                optimizer.step()

    def build(module: Any) -> Any:
        return [Adam(module.net[0].parameters(), 3e-3), Adam(module.net[2].parameters(), 3e-3)]

    return Two(build, None), loader(*blobs()), {}


class _Decays(Classifier):
    """A schedule that advances at each step."""

    def __init__(self, schedule: Any) -> None:
        super().__init__(lr=3e-3)
        self.schedule = schedule

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [{"scheduler": self.schedule(optimizer), "interval": "step"}]


@healthy
def milestones_in_steps() -> Run:
    return _Decays(lambda o: lrs.MultiStepLR(o, [30, 60])), loader(*blobs()), {"max_epochs": 10, "max_steps": -1}


@healthy
def slow_decay_every_few_steps() -> Run:
    return _Decays(lambda o: lrs.StepLR(o, 5, 0.97)), loader(*blobs()), {"max_epochs": 10, "max_steps": -1}


@healthy
def warm_start_that_is_halved_after_its_first_steps() -> Run:
    return _Decays(lambda o: lrs.MultiStepLR(o, [5], 0.5)), loader(*blobs()), {"max_epochs": 10, "max_steps": -1}


@healthy
def buffer_filled_before_the_first_loss() -> Run:
    class Fills(Classifier):
        kept: Any = ()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.kept = (*self.kept, batch)[-20:]
            return super().training_step(self.kept[0], batch_idx) if len(self.kept) == 20 else None

    return Fills(), loader(*blobs(1_024)), {"max_epochs": 4, "max_steps": -1}


@healthy
def gradients_summed_up_across_epochs() -> Run:
    class Sums(Manual):
        batches = 0

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            self.manual_backward(Classifier.training_step(self, batch, batch_idx) / 45)
            self.batches += 1
            if self.batches % 45 == 0:
                optimizer.step()
                optimizer.zero_grad()

    return Sums(), loader(*blobs(640)), {"max_epochs": 9, "max_steps": -1}


@healthy
def dropout_of_many_passes_in_validation() -> Run:
    class Passes(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            for m in self.modules():
                if isinstance(m, nn.Dropout):
                    m.train()
            torch.stack([self.net(batch[0]).softmax(1) for _ in range(4)]).std(0).mean()

    return Passes(normalised(), lr=3e-3), loader(*blobs()), {"validation": loader(*blobs(), shuffle=False)}


@healthy
def samples_of_a_part_that_trains_in_validation() -> Run:
    class Draws(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.net.train()
            self.net(batch[0])
            self.net.eval()

    return Draws(normalised(), lr=3e-3), loader(*blobs()), {"validation": loader(*blobs(), shuffle=False)}


@healthy
def modes_set_by_hand_around_the_validation_step() -> Run:
    class ByHand(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.eval()
            super().validation_step(batch, batch_idx)
            self.train()

    return ByHand(normalised(), lr=3e-3), loader(*blobs()), {"validation": loader(*blobs(), shuffle=False)}
