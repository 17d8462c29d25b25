"""Healthy runs with parts that start at exactly zero and wait, or open slowly."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy


def zeroed(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@healthy
def zero_head_for_rewards_that_come_late() -> Run:
    class World(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU()))
            self.following, self.reward = nn.Linear(32, 20), zeroed(32, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, following, reward = batch
            seen = self.net(x)
            return F.mse_loss(self.following(seen), following) + F.mse_loss(self.reward(seen).squeeze(1), reward)

    x = blobs(1280)[0]
    reward = torch.zeros(1280)
    reward[700::20] = 1.0
    return World(), loader(x, x + 0.1 * torch.randn_like(x), reward, shuffle=False), {}


@healthy
def zero_values_before_the_first_reward() -> Run:
    class Values(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, action, reward = batch
            with torch.no_grad():
                wanted = reward + 0.9 * self.net(x.roll(1, 0)).amax(1)
            return F.smooth_l1_loss(self.net(x).gather(1, action[:, None]).squeeze(1), wanted)

    x, action = blobs(1280, k=4)
    reward = torch.zeros(1280)
    reward[700::20] = 1.0
    net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), zeroed(32, 4))
    return Values(net), loader(x, action, reward, shuffle=False), {}


@healthy
def adapters_whose_tasks_come_one_after_another() -> Run:
    class Adapted(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp().requires_grad_(False))
            self.down = nn.ParameterList(torch.randn(4, 20) / 5 for _ in range(4))
            self.up = nn.ParameterList(torch.zeros(32, 4) for _ in range(4))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y, task = batch
            pairs = zip(self.down, self.up, strict=True)
            added = sum((task == i).float()[:, None] * (x @ a.T @ b.T) for i, (a, b) in enumerate(pairs))
            return F.cross_entropy(self.net[2](torch.relu(self.net[0](x) + added)), y)

    x, y = blobs(1280)
    return Adapted(), loader(x, y, torch.arange(1280) // 320, shuffle=False), {}


@healthy
def modulated_blocks_that_open_during_a_warm_up() -> Run:
    class Modulated(nn.Module):
        def __init__(self, width: int = 32) -> None:
            super().__init__()
            self.first, self.time, self.last = nn.Linear(20, width), nn.Linear(1, width), zeroed(width, 20)
            self.norm = nn.LayerNorm(width, elementwise_affine=False)
            self.rows = nn.ModuleList(zeroed(width, 3 * width) for _ in range(3))
            self.blocks = nn.ModuleList(mlp(width, width, width) for _ in range(3))

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            h, c = self.first(x), F.silu(self.time(t))
            for row, block in zip(self.rows, self.blocks, strict=True):
                shift, scale, gate = row(c).chunk(3, -1)
                h = h + gate * block(self.norm(h) * (1 + scale) + shift)
            return self.last(self.norm(h))

    class Flow(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, t = batch[0], torch.rand(len(batch[0]), 1)
            noise = torch.randn_like(x)
            return F.mse_loss(self.net((1 - t) * x + t * noise, t), noise - x)

        def configure_optimizers(self) -> Any:
            optimizer = AdamW(self.parameters(), 1e-3)
            warm = lrs.LambdaLR(optimizer, lambda step: min(1.0, step / 50))
            return [optimizer], [{"scheduler": warm, "interval": "step"}]

    return Flow(Modulated()), loader(blobs(512)[0]), {"max_steps": 60}


class Later(Classifier):
    """Reconstructs its input as well, but not at first."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.Linear(20, 32), nn.ReLU()))
        self.kind, self.again = nn.Linear(32, 10), mlp(32, 20, 64)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        seen = self.net(batch[0])
        return self.joined(F.cross_entropy(self.kind(seen), batch[1]), F.mse_loss(self.again(seen), batch[0]))

    def joined(self, kind: Tensor, again: Tensor) -> Tensor:
        raise NotImplementedError


@healthy
def term_that_is_logged_before_it_counts() -> Run:
    class Added(Later):
        def joined(self, kind: Tensor, again: Tensor) -> Tensor:
            self.log("again", again)
            return kind + again if self.current_epoch >= 2 else kind

    return Added(), loader(*blobs(512)), {"max_epochs": 4}


@healthy
def term_whose_factor_is_zero_at_first() -> Run:
    class Switched(Later):
        def joined(self, kind: Tensor, again: Tensor) -> Tensor:
            return kind + (0.0 if self.global_step < 40 else 1.0) * again

    return Switched(), loader(*blobs(512)), {"max_epochs": 4}


@healthy
def biases_set_to_zero_in_the_first_step() -> Run:
    class Initialises(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == 0:
                for layer in self.net[::2]:
                    nn.init.zeros_(layer.bias)
            return super().training_step(batch, batch_idx)

    return Initialises(), loader(*blobs()), {}


@healthy
def copy_in_the_optimizer_that_is_loaded_now_and_then() -> Run:
    class Values(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 4))
            self.target = mlp(20, 4)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, action, reward = batch
            if self.global_step % 20 == 0:
                self.target.load_state_dict(self.net.state_dict())
            with torch.no_grad():
                wanted = reward + 0.9 * self.target(x.roll(1, 0)).amax(1)
            return F.smooth_l1_loss(self.net(x).gather(1, action[:, None]).squeeze(1), wanted)

    x, action = blobs(640, k=4)
    return Values(), loader(x, action, torch.rand(640)), {}
