"""The promises on every device that is at hand: the CPU everywhere, and a CUDA device where there is one."""

import functools
from collections.abc import Callable
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog import SanityWatchdog

from .runs import Classifier, assert_awake, blobs, codes, loader, trainer
from .test_cost import HOOKS

ACCELERATORS = ["cpu", *(["gpu"] if torch.cuda.is_available() else [])]
PRECISIONS = {"cpu": ["32-true", "bf16-mixed"], "gpu": ["32-true", "bf16-mixed", "16-mixed"]}


def weights(*dogs: SanityWatchdog, net: Callable[[], Classifier] = Classifier, **settings: Any) -> list[Tensor]:
    """Parameters on the host after a run of 110 steps, which ends behind the first late pair of samples."""
    L.seed_everything(0, verbose=False)
    module = net()
    trainer(*dogs, max_steps=110, max_epochs=-1, **settings).fit(module, loader(*blobs()))
    return [p.detach().cpu() for p in module.parameters()]


@pytest.mark.parametrize(("accelerator", "precision"), [(a, p) for a in ACCELERATORS for p in PRECISIONS[a]])
def test_a_watched_run_ends_with_the_same_bits(accelerator: str, precision: str) -> None:
    dog = SanityWatchdog(fail_on=None)
    settings = {"accelerator": accelerator, "precision": precision, "deterministic": True}
    for mine, plain in zip(weights(dog, **settings), weights(**settings), strict=True):
        assert torch.equal(mine, plain)
    assert_awake(dog, 20)
    assert codes(dog) == []


class Softmaxed(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x).softmax(1), y)


class Zeroed(Classifier):
    def on_train_batch_end(self, *_: Any) -> None:
        if self.trainer.global_step == 100:
            with torch.no_grad():
                self.net[0].weight.zero_()


@pytest.mark.parametrize("accelerator", ACCELERATORS)
@pytest.mark.parametrize(("net", "code"), [(Softmaxed, "WD102"), (Zeroed, "WD301")])
def test_faults_are_named_on_each_device(accelerator: str, net: type[Classifier], code: str) -> None:
    dog = SanityWatchdog(fail_on=None)
    weights(dog, net=net, accelerator=accelerator)
    assert codes(dog)[:1] == [code]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", PRECISIONS["gpu"])
def test_no_hook_waits_for_the_device_once_the_first_step_is_over(precision: str) -> None:
    dog, strict = SanityWatchdog(fail_on=None), 0

    def around(name: str) -> Callable[..., None]:
        hook = getattr(dog, name)

        @functools.wraps(hook)
        def call(*args: Any, **kwargs: Any) -> None:
            nonlocal strict
            watch = dog._watch
            if watch is None or not watch.attempts or watch.now.sync:
                return hook(*args, **kwargs)
            strict += 1
            torch.cuda.set_sync_debug_mode("error")
            try:
                return hook(*args, **kwargs)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return call

    for name in HOOKS:
        setattr(dog, name, around(name))
    weights(dog, accelerator="gpu", precision=precision)
    assert strict > 500
    assert_awake(dog, 20)
