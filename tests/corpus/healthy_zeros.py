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
