"""Small trainings on several processes, healthy or faulty in one known way."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.distributed.algorithms import Join
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from tests.runs import blobs, mlp

Case = tuple[L.LightningModule, Any, dict[str, Any]]
CASES: dict[str, Callable[[int], Case]] = {}


def case(build: Callable[[int], Case]) -> Callable[[int], Case]:
    """Register a training of so many processes under its name."""
    CASES[build.__name__.replace("_", "-")] = build
    return build


class Net(L.LightningModule):
    """A classifier; ``on_one`` is true on rank one alone."""

    def __init__(self, net: nn.Module | None = None, lr: float = 0.05) -> None:
        super().__init__()
        self.net, self.lr = mlp() if net is None else net, lr
        self.losses: list[float] = []

    @property
    def on_one(self) -> bool:
        return self.global_rank == 1

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), self.lr)


def data(n: int = 512, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*blobs(n)), **{"batch_size": 16, "shuffle": True, **settings})


@case
def plain(world: int) -> Case:
    return Net(), data(), {}


class OneNaN(Net):
    """The loss of rank one is NaN in step five."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return loss * float("nan") if self.on_one and self.global_step == 5 else loss


@case
def one_nan(world: int) -> Case:
    return OneNaN(), data(), {}


class Softmax(Net):
    """Rank ``odd`` applies softmax before cross entropy, and is killed in step ``dies``."""

    def __init__(self, odd: int = 1, dies: int = -1) -> None:
        super().__init__()
        self.odd, self.dies = odd, dies

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        is_odd = self.global_rank == self.odd
        if is_odd and self.global_step == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        out = self.net(batch[0])
        return F.cross_entropy(out.softmax(-1) if is_odd else out, batch[1])


@case
def softmax_on_one(world: int) -> Case:
    return Softmax(), data(), {}


@case
def killed_after_its_alert(world: int) -> Case:
    return Softmax(dies=1), data(), {}


@case
def rank_zero_killed(world: int) -> Case:
    return Softmax(odd=0, dies=7), data(), {"strategy": short()}


class Drifting(Net):
    """Rank ``odd`` adds something to a weight in step three."""

    def __init__(self, odd: int = 1) -> None:
        super().__init__()
        self.odd = odd

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == 3 and self.global_rank == self.odd:
            with torch.no_grad():
                self.net[2].weight += 1e-3


@case
def diverging(world: int) -> Case:
    return Drifting(), data(), {}


@case
def diverging_zero(world: int) -> Case:
    return Drifting(odd=0), data(), {}


@case
def shared_data(world: int) -> Case:
    dataset = TensorDataset(*blobs(512))
    loader = DataLoader(dataset, 16, sampler=RandomSampler(dataset))
    return Net(), loader, {"use_distributed_sampler": False}


class Thawed(Net):
    """The first layer is frozen while DDP wraps the module, and trained later."""

    def __init__(self) -> None:
        super().__init__()
        self.net[0].requires_grad_(False)

    def on_train_start(self) -> None:
        self.net[0].requires_grad_(True)


@case
def thawed_after_wrapping(world: int) -> Case:
    return Thawed(), data(), {}


class Manual(Net):
    """Manual optimisation."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        loss = super().training_step(batch, batch_idx)
        optimizer.zero_grad()
        self.backpropagate(loss)
        optimizer.step()

    def backpropagate(self, loss: Any) -> None:
        self.manual_backward(loss)


class Bypassed(Manual):
    """Gradients are made without the backward pass whose hooks average them."""

    def backpropagate(self, loss: Any) -> None:
        parameters = list(self.parameters())
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = g


@case
def bypassed(world: int) -> Case:
    return Bypassed(), data(), {"strategy": DDPStrategy(find_unused_parameters=True)}


class Skipping(Manual):
    """Ranks find one batch in ten unusable. They agree to skip it, or each goes on ``alone``, which DDP cannot bear.
    Rank one is killed in step ``dies``."""

    def __init__(self, alone: bool, dies: int = -1) -> None:
        super().__init__(nn.Linear(20, 10))
        self.alone, self.dies = alone, dies

    def on_train_start(self) -> None:
        self.own = torch.Generator().manual_seed(self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if self.on_one and self.global_step == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        unusable = torch.rand((), generator=self.own).item() < 0.1 and self.global_step > 5
        if not self.alone:
            unusable = self.trainer.strategy.reduce_boolean_decision(unusable, all=False)
        if not unusable:
            super().training_step(batch, batch_idx)


SOAK = 2_000


@case
def skipping_alone(world: int) -> Case:
    return Skipping(alone=True), data(2048), {"strategy": short(3)}


@case
def soak(world: int) -> Case:
    return Skipping(alone=False, dies=SOAK - 100), data(2048), {"max_steps": SOAK, "strategy": short()}


def short(seconds: float = 30) -> DDPStrategy:
    """DDP with a time-out of seconds instead of half an hour."""
    return DDPStrategy(timeout=timedelta(seconds=seconds))


class Alone(Net):
    """Rank one leaves the step without a loss, which Lightning does not allow."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if self.on_one and batch_idx == 4 else super().training_step(batch, batch_idx)


@case
def wrong_dtype(world: int) -> Case:
    x, y = blobs(64)
    return Net(), DataLoader(TensorDataset(x.double(), y), 16), {}


class Raising(Net):
    """Raises on every rank in a step that is not looked at."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.global_step == 10:
            raise ValueError("of the user's own")
        return super().training_step(batch, batch_idx)


@case
def raising_between_samples(world: int) -> Case:
    return Raising(), data(), {}


@case
def no_loss_on_one(world: int) -> Case:
    return Alone(), data(), {"strategy": short()}


class Uneven(Net):
    """Rank one has fewer batches."""

    def train_dataloader(self) -> Any:
        rank, world = self.trainer.global_rank, self.trainer.world_size
        x, y = blobs(512)
        n = 160 if rank == 1 else 192
        return DataLoader(TensorDataset(x[rank::world][:n], y[rank::world][:n]), 16, shuffle=True)


@case
def uneven(world: int) -> Case:
    return Uneven(), None, {"use_distributed_sampler": False, "max_epochs": 1, "max_steps": -1, "strategy": short()}


@case
def uneven_but_short(world: int) -> Case:
    return Uneven(), None, {"use_distributed_sampler": False, "max_steps": 10}


class Joins(L.Callback):
    """Joins uneven inputs."""

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self.join = Join([trainer.strategy.model])
        self.join.__enter__()


@case
def uneven_and_joined(world: int) -> Case:
    settings = {"use_distributed_sampler": False, "max_steps": 11, "callbacks": [Joins()]}
    return Uneven(), None, {**settings, "strategy": short()}


class Denoiser(Net):
    """Draws noise in its step; from another seed on each rank where ``seeded``."""

    def __init__(self, seeded: bool) -> None:
        super().__init__(mlp(20, 20))
        self.seeded = seeded

    def on_train_start(self) -> None:
        if self.seeded:
            torch.manual_seed(7 + self.global_rank)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        noise = torch.randn_like(batch[0])
        return F.mse_loss(self.net(batch[0] + noise), noise)


@case
def shared_noise(world: int) -> Case:
    return Denoiser(seeded=False), data(), {}


@case
def own_noise(world: int) -> Case:
    return Denoiser(seeded=True), data(), {}


class Queue(Net):
    """Keeps the last batches of its own rank in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(16, 20))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.queue.copy_(batch[0])
        return super().training_step(batch, batch_idx)


@case
def own_queues(world: int) -> Case:
    return Queue(), data(), {"strategy": DDPStrategy(broadcast_buffers=False)}


@case
def broadcast_queues(world: int) -> Case:
    return Queue(), data(), {}


class Local(Net):
    """Gradients stay on their rank; the strategy averages the weights every few steps."""

    def on_train_start(self) -> None:
        self.trainer.strategy.model.register_comm_hook(None, noop_hook)


@case
def local_steps(world: int) -> Case:
    state = post_localSGD_hook.PostLocalSGDState(None, None, 0)
    hook = post_localSGD_hook.post_localSGD_hook
    strategy = DDPStrategy(ddp_comm_state=state, ddp_comm_hook=hook, model_averaging_period=4)
    return Local(), data(), {"strategy": strategy}


class Compressed(Net):
    """Gradients travel in half precision."""

    def on_train_start(self) -> None:
        self.trainer.strategy.model.register_comm_hook(None, fp16_compress_hook)


@case
def compressed_gradients(world: int) -> Case:
    return Compressed(), data(), {}


@case
def dropout(world: int) -> Case:
    return Net(nn.Sequential(nn.Dropout(0.3), mlp())), data(), {}


@case
def everything_usual(world: int) -> Case:
    """BatchNorm, dropout, AdamW, clipping, a static graph."""
    net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    module = Net(net)
    module.configure_optimizers = lambda: torch.optim.AdamW(module.parameters(), 1e-3)  # type: ignore[method-assign]
    settings = {"gradient_clip_val": 1.0, "strategy": DDPStrategy(static_graph=True)}
    return module, data(1024), settings
