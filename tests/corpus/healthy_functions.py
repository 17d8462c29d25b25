"""Healthy runs with function transforms, gradients of one's own, data that are not used, and rare tensors."""

import copy
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.optim import SGD, Adam, SparseAdam
from torch.utils.data import DataLoader

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import Language, cut, text, tones


class Adaptive(L.LightningModule):
    """A module whose Adam holds what trains."""

    def configure_optimizers(self) -> Any:
        return Adam((p for p in self.parameters() if p.requires_grad), 1e-3)


@healthy
def inner_loops_by_transforms() -> Run:
    class Meta(Adaptive):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(1, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            weights = dict(self.net.named_parameters())

            def loss(weights: Any, x: Tensor, y: Tensor) -> Tensor:
                return F.mse_loss(functional_call(self.net, weights, (x,)), y)

            def task(x: Tensor, y: Tensor, more: Tensor, wanted: Tensor) -> Tensor:
                slopes = grad(loss)(weights, x, y)
                return loss({n: w - 0.05 * slopes[n] for n, w in weights.items()}, more, wanted)

            return vmap(task)(*batch).mean()

    phase, (x, more) = 3 * torch.rand(160, 1, 1), 6 * torch.rand(2, 160, 10, 1) - 3
    return Meta(), loader(x, (x + phase).sin(), more, (more + phase).sin(), batch_size=8), {}


@healthy
def gradients_per_sample_with_noise() -> Run:
    class Private(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            def loss(weights: Any, x: Tensor, y: Tensor) -> Tensor:
                return F.cross_entropy(functional_call(self.net, weights, (x[None],)), y[None])

            weights = {n: p.detach() for n, p in self.net.named_parameters()}
            slopes = vmap(grad(loss), (None, 0, 0))(weights, *batch)
            lengths = torch.stack([s.flatten(1).norm(dim=1) for s in slopes.values()]).norm(dim=0).clamp(min=1)
            for name, p in self.net.named_parameters():
                clipped = slopes[name] / lengths.view(-1, *[1] * p.ndim)
                p.grad = clipped.mean(0) + 0.01 * torch.randn_like(p)
            self.optimizers().step()

    return Private(optimizer=SGD, lr=0.1), loader(*blobs(512)), {}


@healthy
def four_networks_at_once() -> Run:
    class Ensemble(Adaptive):
        def __init__(self) -> None:
            super().__init__()
            nets = [mlp() for _ in range(4)]
            self.stacked = nn.ParameterList(p.detach().clone() for p in stack_module_state(nets)[0].values())
            self.__dict__["pattern"] = copy.deepcopy(nets[0])

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            names = [n for n, _ in self.pattern.named_parameters()]

            def scores(*weights: Tensor) -> Tensor:
                return functional_call(self.pattern, dict(zip(names, weights, strict=True)), (batch[0],))

            return F.cross_entropy(vmap(scores)(*self.stacked).flatten(0, 1), batch[1].repeat(4))

    return Ensemble(), loader(*blobs(512)), {}


@healthy
def equation_of_decay() -> Run:
    class Physics(Adaptive):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            time = batch[0].requires_grad_()
            height = self.net(time)
            (slope,) = torch.autograd.grad(height.sum(), time, create_graph=True)
            return (slope + height).square().mean() + (self.net(torch.zeros(1, 1)) - 1).square().mean()

    return Physics(), loader(2 * torch.rand(320, 1)), {}


@healthy
def policy_that_makes_its_own_data() -> Run:
    class Policy(Adaptive):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.policy, self.value = mlp(4, 3), mlp(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            state = torch.randn(64, 4)
            with torch.no_grad():
                before = Categorical(logits=self.policy(state))
                action = before.sample()
                reward = (action == (state[:, 0] > 0).long()).float()
                gain = reward - self.value(state)[:, 0]
            for _ in range(3):
                ratio = (Categorical(logits=self.policy(state)).log_prob(action) - before.log_prob(action)).exp()
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = loss + 0.5 * F.mse_loss(self.value(state)[:, 0], reward)
                self.optimizers().zero_grad()
                self.manual_backward(loss)
                self.optimizers().step()

    return Policy(), DataLoader(range(100), 1), {}


@healthy
def soft_actor_with_a_temperature() -> Run:
    class Soft(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.policy, self.critic, self.heat = mlp(4, 2), mlp(5, 1), nn.Parameter(torch.zeros(()))
            self.target = copy.deepcopy(self.critic).requires_grad_(False)

        def act(self, state: Tensor) -> tuple[Tensor, Tensor]:
            mean, scale = self.policy(state).chunk(2, 1)
            chosen = Normal(mean, scale.clamp(-4, 1).exp())
            raw = chosen.rsample()
            return raw.tanh(), (chosen.log_prob(raw) - torch.log(1 - raw.tanh() ** 2 + 1e-6)).sum(1)

        def judge(self, critic: nn.Module, state: Tensor, action: Tensor) -> Tensor:
            return critic(torch.cat([state, action], 1))[:, 0]

        def training_step(self, batch: Any, batch_idx: int) -> None:
            state, reward, after = batch
            actor, critic, heat = self.optimizers()
            with torch.no_grad():
                action, surprise = self.act(after)
                wanted = reward + 0.9 * (self.judge(self.target, after, action) - self.heat.exp() * surprise)
            value = self.judge(self.critic, state, 2 * torch.rand(len(state), 1) - 1)
            action, surprise = self.act(state)
            losses = (
                (critic, lambda: F.mse_loss(value, wanted)),
                (actor, lambda: (self.heat.exp().detach() * surprise - self.judge(self.critic, state, action)).mean()),
                (heat, lambda: -(self.heat * (surprise.detach() - 1)).mean()),
            )
            for optimizer, loss in losses:
                optimizer.zero_grad()
                self.manual_backward(loss())
                optimizer.step()
            for mine, slow in zip(self.critic.parameters(), self.target.parameters(), strict=True):
                slow.data.lerp_(mine.data, 0.01)

        def configure_optimizers(self) -> Any:
            return [Adam(p, 1e-3) for p in (self.policy.parameters(), self.critic.parameters(), [self.heat])]

    state = torch.randn(640, 4)
    return Soft(), loader(state, state[:, 0], state + 0.1 * torch.randn_like(state)), {"max_steps": 120}


@healthy
def spikes_with_a_surrogate_slope() -> Run:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x > 0).float()

        @staticmethod
        def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
            return slope / (1 + 10 * ctx.saved_tensors[0].abs()) ** 2

    class Spiking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(20, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            charge, total = torch.zeros(()), torch.zeros(())
            for _ in range(5):
                charge = 0.9 * charge + self.inlet(x)
                spikes = Spike.apply(charge - 1)
                charge, total = charge - spikes, total + self.outlet(spikes)
            return total / 5

    return Classifier(Spiking(), lr=3e-3), loader(*blobs(512)), {}


@healthy
def fixed_point_with_a_hook() -> Run:
    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.step, self.outlet = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            drive = self.inlet(x)
            state = torch.zeros_like(drive)
            with torch.no_grad():
                for _ in range(10):
                    state = torch.tanh(0.5 * self.step(state) + drive)
            state = torch.tanh(0.5 * self.step(state) + drive)
            if state.requires_grad:
                state.register_hook(lambda slope: 1.2 * slope)
            return self.outlet(state)

    return Classifier(Equilibrium(), lr=3e-3), loader(*blobs(512)), {}


@healthy
def adapters_in_a_frozen_network() -> Run:
    class Adapter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(32, 4), nn.Linear(4, 32)
            nn.init.zeros_(self.up.weight)
            nn.init.zeros_(self.up.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.up(torch.relu(self.down(x)))

    base = mlp().requires_grad_(False)
    return Classifier(nn.Sequential(base[0], base[1], Adapter(), base[2]), lr=3e-3), loader(*blobs(512)), {}


@healthy
def biases_alone() -> Run:
    net = mlp()
    for name, p in net.named_parameters():
        p.requires_grad = name.endswith("bias")
    return Classifier(net, lr=1e-2), loader(*blobs(512)), {}


@healthy
def large_table_with_sparse_gradients() -> Run:
    class Table(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.table, self.head = nn.Embedding(100_000, 16, sparse=True), nn.Linear(16, 4)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            loss = F.cross_entropy(self.head(self.table(batch[0]).mean(1)), batch[1])
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return SparseAdam(self.table.parameters(), 1e-2), Adam(self.head.parameters(), 1e-2)

    y = torch.randint(0, 4, (320,))
    return Table(), loader(4 * torch.randint(0, 2000, (320, 5)) + y[:, None], y), {}


@healthy
def padding_masked_by_hand() -> Run:
    class Masked(Language):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            source, target = batch[0][:, :-1], batch[0][:, 1:]
            losses = F.cross_entropy(self.net(source).transpose(1, 2), target, reduction="none")
            return losses[target != 0].mean()

    return Masked(), loader(cut(text(), 4, 16)), {}


@healthy
def sequences_of_any_length_as_one_tensor() -> Run:
    class Jagged(Adaptive):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(8, 16), nn.Linear(16, 4)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            rows, labels = batch
            inner = torch.relu(self.inlet(torch.nested.nested_tensor(rows, layout=torch.jagged)))
            return F.cross_entropy(self.outlet(torch.stack([row.mean(0) for row in inner.unbind()])), labels)

    def collate(samples: list[tuple[Tensor, Tensor]]) -> Any:
        return [x[: 5 + int(y)] for x, y in samples], torch.stack([y for _, y in samples])

    return Jagged(), loader(*tones(), collate_fn=collate), {}


@healthy
def hard_sigmoid_by_hand_and_its_entropy() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        target = F.one_hot(y, 10).float()
        p = (z / 6 + 0.5).clamp(1e-4, 1 - 1e-4)
        return -(target * p.log() + (1 - target) * (1 - p).log()).mean()

    return Classifier(loss=loss), loader(*blobs()), {}


@healthy
def gates_by_hand_before_scores() -> Run:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.outlet = nn.Linear(20, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            return self.outlet(h / (1 + (-h).exp()))

    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(z, F.one_hot(y, 10).float())

    return Classifier(Gated(), loss), loader(*blobs()), {}
