"""What watching costs, counted and not timed: operators, reads, transfers, bytes on disk, tensors kept alive."""

import contextlib
import functools
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from sanity_watchdog import SanityWatchdog
from sanity_watchdog.delivery import Delivery
from sanity_watchdog.observe import aside, progress
from sanity_watchdog.observe.data import FIRST
from sanity_watchdog.observe.observer import is_plain
from sanity_watchdog.observe.packet import Packet
from sanity_watchdog.observe.sampling import SETTLED, sampled
from sanity_watchdog.observe.undone import BOUNDARIES

from .runs import Classifier, Manual, assert_awake, blobs, detaches_seen, loader, mlp, trainer

HOOKS = (
    "on_train_batch_start",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "_about_to_step",
    "_stepped",
    "on_train_batch_end",
)
READS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero")
"""Operators whose result the host has to wait for."""
BETWEEN = 6
"""Operators per batch of one floating and one integer tensor: sum, argmax, aminmax, detach, copy."""
PRINTS = 6
"""More of them in the first batches, whose fingerprints are compared."""
PER_COPY = 4
"""Operators per parameter where its samples are copied at the end of an epoch or the beginning of the next."""
PER_SAMPLE, PER_PARAMETER = 280, 22
"""Operators of a late sample: so many, and so many more for each parameter."""


@pytest.fixture(autouse=True)
def _seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modes of these tests see what is hidden from the user's."""
    monkeypatch.setattr(aside, "_aside", contextlib.nullcontext)


class Operators(TorchDispatchMode):
    """Counts the operators that our hooks call; what readers do with numbers that have arrived is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.arrived = self.within = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.arrived:
            self.seen[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    def take(self) -> Counter[str]:
        """What was seen since the last time; a ``detach`` counts once."""
        seen, self.seen = self.seen, Counter()
        seen["detach"] //= detaches_seen()
        return seen


@dataclass
class Step:
    """One batch: is it sampled, may it be read at once, what was called, how many packets went to the host."""

    sampled: bool
    sync: bool
    operators: Counter[str] = field(default_factory=Counter)
    transfers: int = 0


def counted(monkeypatch: pytest.MonkeyPatch, dog: SanityWatchdog) -> list[Step]:
    """Steps of the coming fit, with the operators between the first line and the last of each of our hooks."""
    steps: list[Step] = []
    operators = Operators()
    deliver, send = Delivery._deliver, Packet.send

    def delivering(self: Delivery, at: Any) -> None:
        operators.arrived = True
        try:
            deliver(self, at)
        finally:
            operators.arrived = False

    def sending(self: Packet) -> None:
        if self._waiting and operators.within and steps:
            steps[-1].transfers += 1
        send(self)

    def around(name: str) -> Callable[..., None]:
        hook = getattr(dog, name)

        @functools.wraps(hook)
        def call(*args: Any, **kwargs: Any) -> None:
            operators.take()
            operators.within = True
            with operators:
                hook(*args, **kwargs)
            operators.within = False
            watch = dog._watch
            if watch is None:
                return
            if name == HOOKS[0]:
                steps.append(Step(watch.now.sampled, watch.now.sync))
            steps[-1].operators += operators.take()

        return call

    monkeypatch.setattr(Delivery, "_deliver", delivering)
    monkeypatch.setattr(Packet, "send", sending)
    for name in HOOKS:
        setattr(dog, name, around(name))
    return steps


class Convolutional(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
        )


class Tokens(nn.Module):
    """Token ids ``(B, T)`` to scores ``(B, V, T)``."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.body(self.token(ids), mask=mask, is_causal=True)).transpose(1, 2)


def tokens() -> DataLoader[Any]:
    ids = torch.randint(0, 50, (64, 13))
    return loader(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), batch_size=8)


def images() -> DataLoader[Any]:
    return loader(torch.randn(64, 3, 8, 8), torch.randint(0, 10, (64,)), batch_size=8)


WORK: dict[str, tuple[Callable[[], L.LightningModule], Callable[[], Any], dict[str, Any]]] = {
    "mlp": (Classifier, lambda: loader(*blobs()), {}),
    "manual": (Manual, lambda: loader(*blobs()), {}),
    "accumulating": (Classifier, lambda: loader(*blobs()), {"accumulate_grad_batches": 2}),
    "bf16-mixed": (Classifier, lambda: loader(*blobs()), {"precision": "bf16-mixed"}),
    "cnn": (lambda: Classifier(Convolutional()), images, {}),
    "transformer": (lambda: Classifier(Tokens()), tokens, {}),
}


def run_of(monkeypatch: pytest.MonkeyPatch, work: str) -> tuple[list[Step], int]:
    """Steps of 70 batches, and the number of parameters."""
    L.seed_everything(0, verbose=False)
    module, data, settings = WORK[work]
    dog, net = SanityWatchdog(fail_on=None, every_n_steps=31), module()
    steps = counted(monkeypatch, dog)
    trainer(dog, max_steps=70, max_epochs=-1, **settings).fit(net, data())
    assert_awake(dog, 20)
    assert steps[0].sync, "and the first step, where it is allowed, is the proof that reads would be seen"
    return steps, sum(1 for _ in net.parameters())


@pytest.mark.parametrize("work", WORK)
def test_operators_are_few_and_nothing_is_read_between_samples(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    monkeypatch.setattr(progress, "number_on_host", lambda loss: None)  # as where the loss lies on a device
    steps, parameters = run_of(monkeypatch, work)
    between = [s for s in steps if not s.sampled]
    samples = [s for s in steps if s.sampled and not s.sync]
    assert len(between) >= 40
    assert len(samples) >= 10
    copying = 0
    for number, step in enumerate(steps):
        if not step.sampled:
            allowed = BETWEEN + PRINTS * (number < FIRST)
            copies = step.operators["clone"] and sum(step.operators.values()) > allowed
            copying += bool(copies)
            assert sum(step.operators.values()) <= allowed + PER_COPY * parameters * bool(copies), step.operators
            assert step.transfers == 0
    assert copying <= 2 * BOUNDARIES, "copies of the weights are taken around the first epochs' ends only"
    for step in samples:
        assert step.transfers <= 1
        assert 0 < sum(step.operators.values()) <= PER_SAMPLE + PER_PARAMETER * parameters, step.operators
    for step in (*between, *samples):
        assert not any(step.operators[name] for name in READS), step.operators


@pytest.mark.parametrize("work", ["mlp", "accumulating"])
def test_a_loss_on_the_host_is_all_that_is_looked_at_once_a_run_has_settled(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    steps, _ = run_of(monkeypatch, work)
    late = [s for i, s in enumerate(steps) if not s.sampled and i >= SETTLED]
    assert len(late) >= 4
    for step in late:
        assert step.operators == {"_local_scalar_dense": 1}
        assert step.transfers == 0


def test_a_read_between_samples_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reading(SanityWatchdog):
        def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
            float(loss)

    dog = Reading(fail_on=None)
    steps = counted(monkeypatch, dog)
    trainer(dog).fit(Classifier(), loader(*blobs()))
    assert all(s.operators["_local_scalar_dense"] for s in steps)


def hundred_layers() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(100):
        layers += [nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(8, 10))


def written(folder: Path, steps: int, every: int) -> tuple[int, int]:
    """Bytes of event files and of the record after so many steps."""
    L.seed_everything(0, verbose=False)
    dog = SanityWatchdog(fail_on=None, every_n_steps=every)
    logger = TensorBoardLogger(folder, name="", version=0)
    trainer(dog, max_steps=steps, max_epochs=-1, logger=logger, log_every_n_steps=10**9).fit(
        Classifier(hundred_layers()), loader(*blobs(64, 8), batch_size=8)
    )
    assert_awake(dog, 20)
    events = [p.stat().st_size for p in folder.rglob("events.out*")]
    record = [p.stat().st_size for p in folder.rglob("watchdog.jsonl")]
    assert events
    assert record
    return sum(events), sum(record)


def test_ten_thousand_steps_of_a_hundred_layers_write_less_than_a_megabyte(tmp_path: Path) -> None:
    short, long, every = 62, 86, 5
    one, other = written(tmp_path / "short", short, every), written(tmp_path / "long", long, every)
    more = sum(sampled(i, every) for i in range(short, long))
    rest = sum(sampled(i, 101) for i in range(short, 10_000))
    for before, after in zip(one, other, strict=True):
        assert before + (after - before) / more * rest <= 1_000_000


def census() -> tuple[int, int]:
    """Tensors alive in this process, and bytes of their storages."""
    gc.collect()
    tensors = [o for o in gc.get_objects() if is_plain(o) and o.layout is torch.strided]  # other tests leave odd ones
    return len(tensors), sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())


class Census(L.Callback):
    """Counts at a few batches, each as far from a sample as the others."""

    def __init__(self, *batches: int) -> None:
        self.batches, self.found = batches, []  # type: ignore[var-annotated]

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step in self.batches:
            self.found.append(census())


def kept(*dogs: SanityWatchdog) -> list[tuple[int, int]]:
    L.seed_everything(0, verbose=False)
    counting = Census(111, 313, 1020)
    trainer(*dogs, counting, max_steps=1021, max_epochs=-1).fit(Classifier(mlp(8, 4, 8)), loader(*blobs(64, 8, 4)))
    return counting.found


def test_a_thousand_steps_keep_no_more_alive_than_a_hundred() -> None:
    plain = kept()
    dog = SanityWatchdog(fail_on=None)
    watched = kept(dog)
    assert_awake(dog, 20)
    assert len(watched) == 3
    (_, _), (few, small), (many, large) = watched
    assert many <= few + 2
    assert large <= small + 4096
    parameters = 4 * sum(p.numel() for p in mlp(8, 4, 8).parameters())
    assert watched[-1][1] - plain[-1][1] <= max(parameters // 100, 1 << 20)


class Peak(TorchDispatchMode):
    """Largest sum of the storages that operators have made and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in given:
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: (ref, size) for key, (ref, size) in self.alive.items() if not ref.expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return out


def test_a_sample_of_forty_million_elements_needs_no_more_than_16_mib() -> None:
    class Wide(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            return F.cross_entropy(self.net(x)[:, :10], y)

    dog, peak = SanityWatchdog(fail_on=None), Peak()
    for name in HOOKS:
        setattr(dog, name, peaking(getattr(dog, name), peak))
    net = Wide(nn.Linear(2_000, 20_000, bias=False), optimizer=torch.optim.SGD, lr=0.1)
    data = TensorDataset(torch.randn(16, 2_000), torch.randint(0, 10, (16,)))
    trainer(dog, max_steps=4).fit(net, DataLoader(data, 4))
    assert_awake(dog, 20)
    assert net.net.weight.numel() == 40_000_000
    assert 0 < peak.most <= 16 << 20


def peaking(hook: Callable[..., None], peak: Peak) -> Callable[..., None]:
    @functools.wraps(hook)
    def call(*args: Any, **kwargs: Any) -> None:
        with peak:
            hook(*args, **kwargs)

    return call
