"""Float16 in real runs: autocast and a real loss scaler on the CPU."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.alerts import Alert, Severity
from tests.runs import Classifier, Manual, assert_awake, blobs, codes, fp16, loader, trainer, watched


class Weighted(Classifier):
    """A loss that is a small part of a sum."""

    weight = 1e-5

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx) * self.weight


class OwnAutocast(Weighted):
    """float16 autocast by hand, unknown to Lightning."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return super().training_step(batch, batch_idx)


def alert(dog: SanityWatchdog, code: str) -> Alert:
    (found,) = (a for a in dog.alerts if a.code == code)
    return found


def only() -> SanityWatchdog:
    return SanityWatchdog(fail_on=None, select=["WD2"])


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (Weighted, {"plugins": [fp16(enabled=False)]}),
        (Weighted, {"plugins": [fp16(enabled=False)], "accumulate_grad_batches": 3}),
        (OwnAutocast, {}),
    ],
    ids=["autocast", "accumulation", "autocast by hand"],
)
def test_lost_gradients_are_found(module: type[Weighted], settings: dict[str, Any]) -> None:
    dog = watched(module(), watchdog=only(), **settings)
    assert_awake(dog)
    assert codes(dog)[0] == "WD201"
    assert alert(dog, "WD201").step <= 2
    assert "net.0.weight" in alert(dog, "WD201").subjects


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 2}])
def test_the_same_loss_is_fine_under_a_live_scale(settings: dict[str, Any]) -> None:
    dog = watched(Weighted(), watchdog=only(), plugins=[fp16()], **settings)
    assert_awake(dog)
    assert codes(dog, Severity.INFO) == []
    assert "WD201" in dog.summary.judged


def test_the_second_micro_batch_is_judged_by_itself() -> None:
    class Second(Weighted):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            self.weight = 1.0 if batch_idx % 2 == 0 else 1e-6
            return super().training_step(batch, batch_idx)

    dog = watched(
        Second(), watchdog=only(), plugins=[fp16(enabled=False)], accumulate_grad_batches=2, max_steps=14, max_epochs=9
    )
    assert_awake(dog)
    seen = alert(dog, "WD207")
    assert seen.severity is Severity.INFO


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_cleared_to_zeros_are_no_older_micro_batch(set_to_none: bool) -> None:
    class Zeros(Weighted):
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
            optimizer.zero_grad(set_to_none=set_to_none)

    dog = watched(Zeros(), watchdog=only(), plugins=[fp16(enabled=False)])
    assert codes(dog)[0] == "WD201"


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_other_formats_are_recognised_and_left_alone(precision: Any) -> None:
    dog = watched(Weighted(), watchdog=only(), precision=precision)
    assert codes(dog, Severity.INFO) == []
    assert dog.summary.skipped["WD201"] == "no float16"


def test_stored_half_is_judged_as_it_is() -> None:
    dog = watched(Weighted(optimizer=torch.optim.SGD), watchdog=only(), precision="16-true")
    assert codes(dog)[0] == "WD201"


def test_the_first_module_that_overflows_is_named_before_any_weight_changes() -> None:
    net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Linear(32, 10))
    with torch.no_grad():
        net[2].weight.mul_(3e5)
    module = Classifier(net)
    before = {n: p.clone() for n, p in module.named_parameters()}
    dog = SanityWatchdog(fail_on="error", select=["WD202"])
    with pytest.raises(Exception, match="WD202"):
        trainer(dog, plugins=[fp16(enabled=False)]).fit(module, loader(*blobs()))
    assert alert(dog, "WD202").subjects[0] == "net.2"
    assert all(torch.equal(p, before[n]) for n, p in module.named_parameters())


def test_masks_of_minus_infinity_are_no_overflow() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.mask = nn.Linear(20, 10), Mask()

        def forward(self, x: Tensor) -> Tensor:
            return self.mask(self.body(x))

    class Mask(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = torch.cat([x, torch.full_like(x, -torch.inf)], 1)
            return out

    dog = watched(Classifier(Masked()), watchdog=only(), plugins=[fp16()])
    assert_awake(dog)
    assert codes(dog) == []


def test_a_scale_that_finds_its_value_is_healthy() -> None:
    dog = watched(
        Classifier(optimizer=torch.optim.SGD, lr=0.05),
        watchdog=only(),
        plugins=[fp16(2.0**24)],
        max_steps=40,
        max_epochs=9,
    )
    assert_awake(dog)
    assert codes(dog, Severity.INFO) == []


@pytest.mark.parametrize("optimizer", ["plain", "fused"])
def test_a_scale_that_grows_every_step_is_stuck(optimizer: str) -> None:
    module = Classifier(optimizer=torch.optim.AdamW, fused=optimizer == "fused")
    dog = watched(module, watchdog=only(), plugins=[fp16(2.0**17, growth_interval=1)], max_steps=60, max_epochs=20)
    assert codes(dog)[0] == "WD203"


def test_a_healthy_fused_optimizer_under_a_scaler_is_quiet() -> None:
    module = Classifier(optimizer=torch.optim.AdamW, fused=True)
    dog = watched(module, watchdog=only(), plugins=[fp16()], max_steps=40, max_epochs=9)
    assert_awake(dog)
    assert codes(dog, Severity.INFO) == []


def test_a_gradient_that_overflows_at_any_scale_collapses_it() -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = nn.Linear(20, 32, bias=False), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.normalize(self.net(x).float(), dim=1, eps=1e-12))

    x, y = blobs()
    x[::8] = 0
    dog = watched(Classifier(Normalised()), loader(x, y), watchdog=only(), plugins=[fp16()], max_steps=30, max_epochs=9)
    assert "WD203" in codes(dog)
    assert "collapsed" in alert(dog, "WD203").message or "skipped" in alert(dog, "WD203").message


def test_clipping_scaled_gradients_is_found_in_manual_and_automatic_optimisation() -> None:
    class ClipsFirst(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            loss = self.loss(self.net(batch[0]), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()

    class ClipsInHook(Classifier):
        def on_after_backward(self) -> None:
            nn.utils.clip_grad_norm_(self.parameters(), 0.5)

    manual, automatic = (watched(m, watchdog=only(), plugins=[fp16()]) for m in (ClipsFirst(), ClipsInHook()))
    assert alert(manual, "WD206").severity is Severity.ERROR  # told of by the call, not by norms alone
    assert "test_half.py" in alert(manual, "WD206").where
    assert alert(automatic, "WD206").severity is Severity.ERROR


def test_clipping_on_purpose_is_quiet() -> None:
    dog = watched(Classifier(), watchdog=only(), plugins=[fp16()], gradient_clip_val=1e-3)
    assert_awake(dog)
    assert codes(dog) == []
    assert "WD206" in dog.summary.judged


def test_half_weights_under_a_scaler_are_explained_before_torch_refuses_them() -> None:
    module = Classifier(torch.nn.Sequential(nn.Linear(20, 10)).half())
    dog = only()
    with pytest.raises(ValueError, match="FP16"):
        trainer(dog, plugins=[fp16()]).fit(module, loader(*blobs()))
    assert alert(dog, "WD207").severity is Severity.ERROR


def test_an_eps_that_float16_cannot_hold_is_told_at_the_start() -> None:
    dog = watched(Classifier(), watchdog=only(), precision="16-true", max_steps=1)
    assert (alert(dog, "WD205").step, alert(dog, "WD205").severity) == (0, Severity.ERROR)
    fine = watched(Classifier(eps=1e-4), watchdog=only(), precision="16-true", max_steps=1)
    assert "WD205" not in codes(fine, Severity.INFO)


@pytest.mark.parametrize(
    ("optimizer", "lr", "lost"),
    [
        (torch.optim.AdamW, 1e-6, True),
        (torch.optim.AdamW, 1e-3, False),
        (torch.optim.SGD, 1e-5, True),
        (torch.optim.SGD, 1e-1, False),
    ],
)
def test_lost_updates_of_bfloat16_weights(optimizer: Any, lr: float, lost: bool) -> None:
    dog = watched(Classifier(optimizer=optimizer, lr=lr), watchdog=only(), precision="bf16-true", max_steps=10)
    assert_awake(dog)
    assert ("WD204" in codes(dog)) is lost


def test_a_compiled_function_is_compiled_once_and_its_activations_are_not_looked_at() -> None:
    from torch._dynamo.testing import CompileCounter

    class Compiled(Classifier):
        def __init__(self, compiled: Any) -> None:
            super().__init__()
            self.compiled = [torch.compile(lambda x: self.net(x), backend=compiled)]

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return F.cross_entropy(self.compiled[0](batch[0]), batch[1])

    counts = []
    for watch in (False, True):
        torch._dynamo.reset()
        counter = CompileCounter()
        dogs = [only()] if watch else []
        trainer(*dogs, plugins=[fp16()], max_steps=4).fit(Compiled(counter), loader(*blobs()))
        counts.append((counter.frame_count, counter.op_count))
    torch._dynamo.reset()
    assert counts[0] == counts[1]
    assert_awake(dogs[0])


def test_a_loss_that_is_met_under_a_live_scale_has_lost_nothing() -> None:
    class Met(Classifier):
        late: bool

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            margin = 100 if self.global_step or not self.late else -100
            return F.relu(self.net(batch[0]) - margin).sum()

    Met.late = False
    dog = watched(Met(), watchdog=only(), plugins=[fp16()])
    assert "WD201" not in codes(dog)
    never = watched(Met(), watchdog=only(), plugins=[fp16(enabled=False)])
    assert alert(never, "WD201").severity is Severity.ERROR
    Met.late = True
    later = watched(Met(), watchdog=only(), plugins=[fp16(enabled=False)])
    assert alert(later, "WD201").severity is Severity.WARNING


def test_a_schedule_that_steps_on_skipped_steps() -> None:
    class Overflows(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return super().training_step(batch, batch_idx) * (1e12 if batch_idx % 6 == 5 else 1.0)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 1e-2)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    dog = watched(Overflows(), watchdog=only(), plugins=[fp16(2.0**20)], max_steps=110, max_epochs=30)
    found = alert(dog, "WD203")
    assert found.severity is Severity.WARNING
    assert "schedule" in found.message
