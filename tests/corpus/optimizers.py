"""Learning rates, schedules, hyperparameters, and loops that forget to step."""

import math
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
from .parts import Language, SequenceEncoder, cnn, images, text, tones


@fault("WD501", also=("WD316", "WD141"))
def rate_rounded_to_zero(fixed: bool) -> Run:
    rate = 5e-2
    return Classifier(cnn(), optimizer=SGD, lr=rate if fixed else int(rate)), loader(*images()), {}


@fault("WD501", also=("WD316", "WD141", "WD502"))
def rate_falls_to_zero_at_once() -> Run:
    class Falls(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            schedule = {"scheduler": lrs.StepLR(optimizer, 4, 0.0), "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    return Falls(), loader(*blobs()), {}


@fault("WD317", "WD144", "WD143", also=("WD213", "WD141", "WD107", "WD214", "WD142"))
def rate_of_one_half(fixed: bool) -> Run:
    lr = 3e-3 if fixed else 0.5
    return Classifier(SequenceEncoder(), optimizer=AdamW, lr=lr), loader(*tones()), {}


@fault("WD317", "WD144", "WD143", "WD142", "WD213", also=("WD141", "WD214", "WD211", "WD303", "WD145"))
def plain_descent_with_rate_fifty() -> Run:
    return Classifier(optimizer=SGD, lr=50.0), loader(*blobs()), {}


@fault("WD316", also=("WD141",))
def exponent_too_small(fixed: bool) -> Run:
    return Classifier(SequenceEncoder(), optimizer=AdamW, lr=3e-3 if fixed else 1e-9), loader(*tones()), {}


@fault("WD502", "WD501", also=("WD316", "WD141"))
def warm_up_counted_in_epochs(fixed: bool) -> Run:
    class Warm(Language):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            schedule = lrs.LambdaLR(optimizer, lambda s: min(1.0, s / (10 if fixed else 400)))
            interval = "step" if fixed else "epoch"
            return [optimizer], [{"scheduler": schedule, "interval": interval}]

    return Warm(), loader(text(640), batch_size=16), {}


@fault("WD502", "WD316", first=("WD502",))
def interval_beside_the_scheduler(fixed: bool) -> Run:
    class Beside(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-2)
            schedule = lrs.OneCycleLR(optimizer, 1e-2, total_steps=120)
            if fixed:
                return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
            return {"optimizer": optimizer, "lr_scheduler": schedule, "interval": "step"}

    return Beside(), loader(*blobs(1280)), {"max_steps": 120}


@fault("WD502")
def cosine_planned_in_batches(fixed: bool) -> Run:
    class Cosine(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            schedule = lrs.CosineAnnealingLR(optimizer, 15 if fixed else 300)
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    settings = {"accumulate_grad_batches": 4, "max_epochs": 15, "max_steps": -1}
    return Cosine(), loader(*blobs(640)), settings


@fault("WD503")
def rate_overwritten_in_every_step() -> Run:
    class Overwrites(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = Adam(self.parameters(), 3e-3)
            return [optimizer], [{"scheduler": lrs.ExponentialLR(optimizer, 0.9), "interval": "step"}]

        def on_train_batch_start(self, *_: Any) -> None:
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = 3e-3

    return Overwrites(), loader(*blobs()), {}


@fault("WD503")
def cosine_undone_by_a_second_schedule(fixed: bool) -> Run:
    class Two(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.05, momentum=0.9)
            cosine = lrs.CosineAnnealingLR(optimizer, 150)
            if fixed:
                warm = [{"scheduler": lrs.LinearLR(optimizer, 0.1, total_iters=8), "interval": "step"}]
            else:
                warm = [{"scheduler": lrs.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 8)), "interval": "step"}]
            return [optimizer], [{"scheduler": cosine, "interval": "step"}, *warm]

    return Two(), loader(*blobs()), {"max_steps": 100}


@fault("WD318")
def betas_swapped(fixed: bool) -> Run:
    betas = (0.9, 0.999) if fixed else (0.999, 0.9)
    return Classifier(betas=betas), loader(*blobs()), {}


@fault("WD318", also=("WD317", "WD144", "WD143", "WD213"))
def momentum_of_one() -> Run:
    return Classifier(optimizer=SGD, lr=0.01, momentum=1.0), loader(*blobs()), {}


@fault("WD318", "WD316", also=("WD141",))
def epsilon_of_ten() -> Run:
    return Classifier(eps=10.0), loader(*blobs()), {}


@fault("WD316", also=("WD141",))
def clipped_to_next_to_nothing(fixed: bool) -> Run:
    settings = {"gradient_clip_val": 1.0 if fixed else 1e-6, "max_steps": 80}
    return Classifier(optimizer=SGD, lr=0.1, momentum=0.9), loader(*blobs()), settings


@fault("WD318", also=("WD316", "WD141"))
def schedule_returns_the_rate(fixed: bool) -> Run:
    class Cosine(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 3e-3)
            most = 1.0 if fixed else 3e-3
            schedule = lrs.LambdaLR(optimizer, lambda s: most * 0.5 * (1 + math.cos(math.pi * min(s, 200) / 200)))
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    return Cosine(), loader(*blobs()), {}


@fault("WD506", also=("WD316",))
def loss_not_returned(fixed: bool) -> Run:
    class Silent(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss if fixed else None

    return Silent(), loader(*blobs(640)), {"max_epochs": 2, "max_steps": -1}


@fault("WD506", also=("WD316",))
def manual_loop_that_never_steps() -> Run:
    class Forgets(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.optimizers().zero_grad()
            self.manual_backward(self.loss(self.net(batch[0]), batch[1]))

    return Forgets(), loader(*blobs(640)), {"max_epochs": 2, "max_steps": -1}


@fault("WD506")
def condition_on_steps_that_comes_true_no_more(fixed: bool) -> Run:
    class Stops(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.net(batch[0]), batch[1]))
            if fixed or self.global_step < 80:
                optimizer.step()

    return Stops(), loader(*blobs(640)), {"max_epochs": 30, "max_steps": -1}


@fault("WD506")
def loss_returned_in_the_first_epochs_alone() -> Run:
    class Warms(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss if self.current_epoch < 5 else None

    return Warms(), loader(*blobs(640)), {"max_epochs": 30, "max_steps": -1}


@fault("WD506", "WD314", also=("WD316", "WD217"))
def manual_loop_without_backward() -> Run:
    class Forgets(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(self.net(batch[0]), batch[1])
            self.optimizers().zero_grad()
            self.optimizers().step()
            return loss

    return Forgets(), loader(*blobs(640)), {}


@fault("WD511")
def optimizer_made_in_every_step(fixed: bool) -> Run:
    class Makes(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers() if fixed else AdamW(self.net.parameters(), 1e-3)
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.net(batch[0]), batch[1]))
            optimizer.step()

    return Makes(), loader(*blobs(640)), {"max_epochs": 2, "max_steps": -1}


@fault("WD511")
def moments_cleared_in_every_epoch(fixed: bool) -> Run:
    class Clears(Classifier):
        def on_train_epoch_start(self) -> None:
            if not fixed or self.current_epoch == 1:
                self.trainer.optimizers[0].state.clear()

    return Clears(cnn()), loader(*images()), {}


@fault("WD506")
def optimizer_made_in_the_hook_that_steps() -> Run:
    class Makes(Classifier):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any = None) -> None:
            closure()
            SGD(self.parameters(), 0.1).step()

    return Makes(), loader(*blobs(640)), {"max_epochs": 2, "max_steps": -1}


@fault("WD217", "WD316", "WD506", also=("WD141",))
def optimizer_step_of_ones_own_without_a_step() -> Run:
    class Hooked(Classifier):
        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any = None) -> None:
            closure()
            for group in optimizer.param_groups:
                group["seen"] = batch_idx

    return Hooked(), loader(*blobs(640)), {"max_epochs": 2, "max_steps": -1}


@fault("WD320", "WD316", "WD504", "WD217", "WD311", first=("WD320",))
def weights_restored_after_every_batch() -> Run:
    class Restores(Classifier):
        def on_train_batch_start(self, *_: Any) -> None:
            self.kept = {n: p.detach().clone() for n, p in self.net.named_parameters()}

        def on_train_batch_end(self, *_: Any) -> None:
            self.net.load_state_dict(self.kept)

    return Restores(nn.Sequential(mlp(), nn.Identity())), loader(*blobs()), {}


@fault("WD144", "WD141", "WD317", "WD318")
def negative_rate() -> Run:
    class Uphill(SGD):
        def __init__(self, values: Any, lr: float) -> None:
            super().__init__(values, lr=0.0)
            for group in self.param_groups:
                group["lr"] = lr

    loss: Any = lambda z, y: nn.functional.cross_entropy(z, y)  # noqa: E731
    return Classifier(loss=loss, optimizer=Uphill, lr=-0.1), loader(*blobs()), {}
