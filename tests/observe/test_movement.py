"""How far optimizers move what they hold, and what they were told, under a real Trainer."""

from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Severity
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, fp16, loader, mlp, trainer, watched

SELECT = ("WD316", "WD317", "WD318", "WD319")


def watch(**kwargs: Any) -> SanityWatchdog:
    return SanityWatchdog(fail_on=None, select=SELECT, **kwargs)


def fit(module: L.LightningModule, *callbacks: L.Callback, steps: int = 14, **kwargs: Any) -> SanityWatchdog:
    torch.manual_seed(0)
    dog = watch()
    trainer(dog, *callbacks, max_steps=steps, **kwargs).fit(module, loader(*blobs(480)))
    return dog


class Restored(L.Callback):
    """Puts one layer back after every step."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.kept = module.net[0].weight.detach().clone()
        trainer.optimizers[0].register_step_post_hook(lambda *_: module.net[0].weight.data.copy_(self.kept))


SGD, AdamW = torch.optim.SGD, torch.optim.AdamW


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda: Classifier(optimizer=AdamW, lr=1e-9), ["WD316"], id="rate-far-too-small"),
        pytest.param(lambda: Manual(optimizer=AdamW, lr=1e-9), ["WD316"], id="rate-far-too-small-manual"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=1e-12), ["WD316"], id="rate-below-rounding"),
        pytest.param(lambda: Classifier(optimizer=AdamW, lr=0.5), ["WD317"], id="rate-far-too-large"),
        pytest.param(lambda: Classifier(optimizer=AdamW, betas=(0.999, 0.9)), ["WD318"], id="swapped-betas"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=0.1, weight_decay=9.0), ["WD318"], id="decay-eats-weights"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=0.01, momentum=1.0), ["WD318"], id="momentum-of-one"),
        pytest.param(lambda: Classifier(maximize=True, lr=3e-3), ["WD318"], id="climbs-the-loss"),
    ],
)
def test_a_fault_of_movement_is_named_alone(build: Any, expected: list[str]) -> None:
    dog = fit(build())
    assert codes(dog) == expected
    assert_awake(dog, 3)


def test_a_restored_layer_does_not_move() -> None:
    dog = fit(Classifier(), Restored())
    assert codes(dog) == ["WD316"]
    assert dog.alerts[0].subjects == ("net.0.weight",)
    assert_awake(dog, 3)


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        pytest.param(Classifier, {}, id="adam"),
        pytest.param(lambda: Classifier(optimizer=SGD, lr=0.05, momentum=0.9), {}, id="sgd"),
        pytest.param(lambda: Classifier(optimizer=torch.optim.RMSprop, lr=0.01), {}, id="rmsprop"),
        pytest.param(lambda: Classifier(optimizer=torch.optim.Adam, lr=1e-2), {}, id="adam-fast"),
        pytest.param(lambda: Classifier(optimizer=AdamW, lr=1e-6), {}, id="fine-tuning"),
        pytest.param(lambda: Classifier(optimizer=torch.optim.LBFGS, lr=1.0, max_iter=4), {}, id="lbfgs"),
        pytest.param(lambda: Classifier(nn.Linear(20, 10), optimizer=SGD, lr=30.0), {}, id="linear-probe"),
        pytest.param(lambda: Classifier(lr=1e-3), {"plugins": [fp16(2.0**24)], "max_epochs": 3}, id="fp16-first-skips"),
        pytest.param(lambda: Classifier(lr=1e-3), {"precision": "bf16-true"}, id="bf16-weights"),
        pytest.param(lambda: Classifier(lr=1e-3), {"accumulate_grad_batches": 3}, id="accumulation"),
        pytest.param(lambda: Classifier(lr=1e-3, maximize=True, loss=lambda z, y: -z.square().mean()), {}, id="reward"),
        pytest.param(
            lambda: Classifier(lr=1e-3, maximize=True, loss=lambda z, y: -1.0 * F.cross_entropy(z, y)),
            {},
            id="two-signs",
        ),
    ],
)
def test_healthy_rates_are_quiet(build: Any, settings: dict[str, Any]) -> None:
    dog = fit(build(), **settings)
    assert codes(dog) == []
    assert_awake(dog, 2)


class WarmUp(Classifier):
    """The rate is zero in the first step and tiny in the next ones."""

    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s / 40) ** 8))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def test_a_warm_up_from_zero_is_quiet() -> None:
    dog = fit(WarmUp(), steps=60)
    assert codes(dog) == []


class Scheduled(Classifier):
    """AdamW under ``rate(step)`` times ``lr``."""

    def __init__(self, rate: Any, lr: float = 1e-3) -> None:
        super().__init__(lr=lr)
        self.rate = rate

    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), self.hyperparameters["lr"])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@pytest.mark.parametrize(
    ("rate", "steps", "expected"),
    [
        pytest.param(lambda s: min(1.0, s / 1e10), 40, ["WD316"], id="warm-up-that-never-ends"),
        pytest.param(lambda s: min(1.0, s / 1e6), 40, [], id="warm-up-longer-than-a-trial-run"),
        pytest.param(lambda s: max(0.2**s, 1e-6), 60, ["WD316"], id="used-up-after-a-tenth"),
        pytest.param(lambda s: 1e-6 if s > 40 else 1.0, 60, [], id="used-up-near-the-end"),
    ],
)
def test_a_schedule_is_judged_by_what_it_reaches_in_the_run(rate: Any, steps: int, expected: list[str]) -> None:
    assert codes(fit(Scheduled(rate), steps=steps)) == expected


def test_a_rate_that_turns_negative_is_an_error() -> None:
    class Falling(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-3)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 1 - s / 5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    dog = fit(Falling())
    (alert,) = dog.alerts
    assert (alert.code, alert.severity) == ("WD318", Severity.ERROR)
    assert 5 < alert.step < 14


def test_weights_that_only_decay_are_named() -> None:
    module = Classifier(loss=lambda z, y: 0 * z.sum(), optimizer=AdamW, lr=1.0, weight_decay=0.019)
    dog = fit(module, steps=240, max_epochs=20)
    assert codes(dog) == ["WD319"]


def frozen_part() -> Classifier:
    module = Classifier()
    module.net[0].requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("build", "text"),
    [
        pytest.param(Classifier, "1,002 parameters, all in the optimizer, all moving", id="all"),
        pytest.param(frozen_part, "1,002 parameters, 330 trainable, all in the optimizer, all moving", id="frozen"),
        pytest.param(
            lambda: Classifier(optimizer=AdamW, lr=0.0),
            "1,002 parameters, all in the optimizer, 0 of 4 tensors seen moving",
            id="rate-zero",
        ),
    ],
)
def test_the_closing_line_says_what_is_known(build: Any, text: str) -> None:
    assert fit(build()).summary.vitals["parameters"] == text


class Around(Manual):
    """Steps without Lightning: ``how`` is given the optimizer and what computes the loss."""

    def __init__(self, how: Callable[[Any, Callable[[], Tensor]], Any]) -> None:
        super().__init__(mlp())
        self.how = how

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers(use_pl_optimizer=False)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = self.loss(self.net(batch[0]), batch[1])
            loss.backward()
            return loss

        self.how(optimizer, closure)


def _steps(optimizer: Any, closure: Callable[[], Tensor]) -> None:
    closure()
    optimizer.step()


def _scales(optimizer: Any, closure: Callable[[], Tensor]) -> None:
    closure()
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(torch.ones(()))  # which makes its scale
    scaler.step(optimizer)


@pytest.mark.parametrize("how", [_steps, _scales], ids=["step", "scaler"])
def test_steps_around_lightning_are_seen(how: Any) -> None:
    dog = watched(Around(how), loader(*blobs(480)), watchdog=watch(), max_epochs=1, max_steps=-1)
    assert dog.summary.attempts == dog.summary.batches == 15
    assert "WD316" in dog.summary.judged
    assert codes(dog) == []


def test_steps_around_lightning_that_compute_their_gradients_are_said_to_be_unseen() -> None:
    dog = watched(
        Around(lambda o, closure: o.step(closure)), loader(*blobs(480)), watchdog=watch(), max_epochs=1, max_steps=-1
    )
    assert "WD316" in dog.summary.skipped
    assert codes(dog) == []


def test_rows_that_sparse_gradients_leave_alone_do_not_count_as_stuck() -> None:
    class Table(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.EmbeddingBag(200_000, 16, sparse=True), nn.Linear(16, 4)), optimizer=SGD)

    torch.manual_seed(0)
    y = torch.randint(0, 4, (320,))
    dog = watch()
    trainer(dog, max_steps=40, max_epochs=-1).fit(
        Table(), loader(1 + torch.randint(0, 12, (320, 6)) + 12 * y[:, None], y)
    )
    assert codes(dog) == []
    assert_awake(dog, 1)
