"""What the observers of gradients may cost: no read of the device, and nothing that grows with the run."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.observe.flow import FlowWatch
from sanity_watchdog.observe.gradients import GradientWatch
from sanity_watchdog.observe.half import HalfWatch
from sanity_watchdog.observe.lost_updates import LostUpdateWatch
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import IN_SAMPLES, Observer, is_plain
from sanity_watchdog.observe.run import Run
from sanity_watchdog.observe.saturation import SaturationWatch
from sanity_watchdog.observe.scaler import ScalerWatch
from sanity_watchdog.observe.units import UnitWatch
from tests.runs import fp16

OBSERVERS: tuple[type[Observer], ...] = (
    HalfWatch,
    ScalerWatch,
    LostUpdateWatch,
    FlowWatch,
    GradientWatch,
    UnitWatch,
    SaturationWatch,
)
READS = ("item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__")


class Reads:
    """Counts reads of tensors while ``counting``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counting, self.count = False, 0
        for name in READS:
            monkeypatch.setattr(Tensor, name, self._counted(getattr(Tensor, name)))

    def _counted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: Tensor, *args: Any) -> Any:
            self.count += self.counting
            return read(tensor, *args)

        return counted

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.counting = True
        yield
        self.counting = False


class Training:
    """A plain loop that calls the observers as the callback does, in float16 with a loss scaler or without."""

    def __init__(self, half: bool, dtype: torch.dtype = torch.float32) -> None:
        self.net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(
            dtype
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)
        self.plugin = fp16() if half else None
        self.scaler = self.plugin.scaler if self.plugin else torch.amp.GradScaler("cpu", enabled=False)
        self.run = Run(
            module=self.net,
            optimizers=(self.optimizer,),
            precision="16-mixed" if half else "32-true",
            plugin=self.plugin,
            scaler=self.plugin.scaler if self.plugin else None,
        )
        self.observers = [kind() for kind in OBSERVERS]
        self.half, self.dtype, self.evidence = half, dtype, list[Evidence]()
        for observer in self.observers:
            observer.start(self.run, Moment(run=self.run, sampled=True, sync=True))

    def step(self, number: int, sampled: bool, watch: Callable[[], Any]) -> int:
        """One step; returns how many tensors the observers asked for."""
        at = Moment(run=self.run, batch=number, attempt=number, sampled=sampled)
        x, y = torch.randn(16, 20, dtype=self.dtype), torch.randint(0, 10, (16,))

        def tell(hook: str, *args: Any) -> None:
            with watch():
                for method in (getattr(observer, hook) for observer in self.observers):
                    if sampled or not hasattr(method, IN_SAMPLES):
                        method(at, *args)

        tell("batch", (x, y))
        with ExitStack() as scopes, watch():
            for observer in self.observers:
                for scope in observer.around_step(at, (x, y)):
                    scopes.enter_context(scope)
            with torch.autocast("cpu", torch.float16, enabled=self.half):
                loss = F.cross_entropy(self.net(x).float(), y)
        tell("output", loss)
        self.optimizer.zero_grad()
        scaled = self.scaler.scale(loss)
        tell("before_backward", scaled)
        scaled.backward()
        tell("after_backward")
        self.scaler.unscale_(self.optimizer)
        tell("before_optimizer_step", self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        tell("after_optimizer_step", self.optimizer)
        tell("batch_end", loss.detach())
        for reader, values in zip(at.readers, at.packet.read(), strict=True):
            self.evidence = list(reader(values) or ())
        return len(at.readers)


@pytest.mark.parametrize("half", [True, False])
def test_nothing_is_read_in_any_hook_and_nothing_asked_between_samples(
    half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, training = Reads(monkeypatch), Training(half)
    for number in range(12):
        asked = training.step(number, number % 3 == 0, reads)
        assert (asked > 0) is (number % 3 == 0)
    assert reads.count == 0
    with reads():
        float(torch.ones(()))
    assert reads.count == 1


def live_tensors() -> tuple[int, int]:
    gc.collect()
    tensors = [o for o in gc.get_objects() if is_plain(o) and o.layout is torch.strided]  # other tests leave odd ones
    return len(tensors), sum(t.untyped_storage().nbytes() for t in tensors)


@pytest.mark.parametrize(
    ("half", "dtype", "samples"),
    [(True, torch.float32, 1000), (False, torch.float32, 200), (False, torch.bfloat16, 200)],
)
def test_many_samples_keep_no_more_than_fifty(half: bool, dtype: torch.dtype, samples: int) -> None:
    training = Training(half, dtype)
    for number in range(50):
        training.step(number, True, ExitStack)
    count, size = live_tensors()
    for number in range(50, samples):
        training.step(number, True, ExitStack)
    later, larger = live_tensors()
    assert later <= count + 8
    assert larger <= size + 4096
    weights = sum(p.nbytes for p in training.net.parameters())
    held = [t for o in training.observers for t in vars(o).values() if isinstance(t, Tensor)]
    assert sum(t.nbytes for t in held) <= max(weights // 100, 1 << 20)
