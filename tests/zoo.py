"""Small healthy runs of the kinds that naive checks accuse, by name."""

import copy
import math
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import BackboneFinetuning, StochasticWeightAveraging
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.optim import SGD, Adam, AdamW
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.runs import Classifier, Manual, blobs, fp16, loader, mlp

Run = tuple[L.LightningModule, Any, dict[str, Any]]
"""A module, its training data, and what the Trainer gets besides."""

ZOO: dict[str, Callable[[], Run]] = {}


def healthy(build: Callable[[], Run]) -> Callable[[], Run]:
    ZOO[build.__name__.replace("_", "-")] = build
    return build


def data(batch_size: int = 32, n: int = 640, **kwargs: Any) -> Any:
    return loader(*blobs(n), batch_size=batch_size, **kwargs)


def normed(width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10))


def pretrained(net: nn.Module, steps: int = 60) -> tuple[nn.Module, Any]:
    """A network that already knows the data it comes with."""
    x, y = blobs(640)
    optimizer = Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return net, loader(x, y)


# -- number formats and scaling


@healthy
def first_amp_steps_skipped() -> Run:
    return Classifier(optimizer=SGD, lr=0.05), data(), {"plugins": [fp16(2.0**24)]}


@healthy
def fused_optimizer_under_amp() -> Run:
    return Classifier(optimizer=AdamW, fused=True), data(), {"plugins": [fp16()]}


@healthy
def bf16_mixed() -> Run:
    return Classifier(normed()), data(), {"precision": "bf16-mixed"}


@healthy
def clipped() -> Run:
    return Classifier(lr=3e-3), data(), {"gradient_clip_val": 0.1}


# -- the loop


@healthy
def accumulation() -> Run:
    return Classifier(lr=3e-3), data(8), {"accumulate_grad_batches": 8, "max_steps": 10}


@healthy
def manual_accumulation() -> Run:
    class Accumulates(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            optimizer = self.optimizers()
            loss = self.loss(self.net(batch[0]), batch[1])
            self.manual_backward(loss / 4)
            if (batch_idx + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss

    return Accumulates(), data(16), {"max_steps": 10}


@healthy
def alternating_heads() -> Run:
    class Alternates(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.heads = nn.ModuleList(nn.Linear(32, 10) for _ in range(3))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.heads[batch_idx % 3](torch.relu(self.net(batch[0]))), batch[1])

    return Alternates(), data(), {}


@healthy
def gan_returning_none() -> Run:
    class Gan(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.g, self.d = mlp(8, 2), mlp(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            (real,) = batch
            g, d = self.optimizers()
            fake = self.g(torch.randn(len(real), 8))
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            loss = F.binary_cross_entropy_with_logits(self.d(real), ones)
            loss = loss + F.binary_cross_entropy_with_logits(self.d(fake.detach()), zeros)
            d.zero_grad()
            self.manual_backward(loss / 2)
            d.step()
            g.zero_grad()
            self.manual_backward(F.binary_cross_entropy_with_logits(self.d(fake), ones))
            g.step()

        def configure_optimizers(self) -> Any:
            return Adam(self.g.parameters(), 1e-3), Adam(self.d.parameters(), 1e-3)

    angle = torch.rand(640) * 2 * math.pi
    return Gan(), loader(torch.stack([angle.cos(), angle.sin()], 1)), {"max_steps": 60}


@healthy
def lbfgs() -> Run:
    return (
        Classifier(mlp(width=8), optimizer=torch.optim.LBFGS, max_iter=3, line_search_fn="strong_wolfe"),
        data(640),
        {"max_steps": 6},
    )


@healthy
def two_steps_per_batch() -> Run:
    class Sharpness(Manual):
        """Sharpness-aware minimisation: climb, look, come back, step."""

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            x, y = batch
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.net(x), y))
            moved = []
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in self.net.parameters()]).norm()
                for p in self.net.parameters():
                    moved.append(0.05 * p.grad / norm)
                    p.add_(moved[-1])
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.net(x), y))
            with torch.no_grad():
                for p, m in zip(self.net.parameters(), moved, strict=True):
                    p.sub_(m)
            optimizer.step()

    return Sharpness(), data(), {}


@healthy
def some_batches_skipped() -> Run:
    class Skips(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 5 == 2 else super().training_step(batch, batch_idx)

    return Skips(), data(), {}


# -- schedules


class Scheduled(Classifier):
    def __init__(self, *make: Callable[[Any], Any], interval: str = "step") -> None:
        super().__init__(lr=3e-3)
        self.make, self.interval = make, interval

    def configure_optimizers(self) -> Any:
        optimizer = AdamW(self.parameters(), lr=3e-3)
        schedules = [{"scheduler": m(optimizer), "interval": self.interval, "monitor": "loss"} for m in self.make]
        return [optimizer], schedules

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss


@healthy
def warm_up_from_zero() -> Run:
    return Scheduled(lambda o: lrs.LambdaLR(o, lambda s: min(1.0, s / 15))), data(), {}


@healthy
def plateau() -> Run:
    return Scheduled(lrs.ReduceLROnPlateau, interval="epoch"), data(), {}


@healthy
def several_schedules() -> Run:
    return Scheduled(lambda o: lrs.ExponentialLR(o, 0.99), lambda o: lrs.StepLR(o, 10, 0.5)), data(), {}


@healthy
def cosine_by_epochs_cut_short() -> Run:
    return Scheduled(lambda o: lrs.CosineAnnealingLR(o, 90), interval="epoch"), data(), {"max_steps": 40}


@healthy
def one_group_at_rate_zero() -> Run:
    class Grouped(Classifier):
        def configure_optimizers(self) -> Any:
            first, second = self.net[0].parameters(), self.net[2].parameters()
            return Adam([{"params": first, "lr": 0.0}, {"params": second}], lr=3e-3)

    return Grouped(), data(), {}


@healthy
def weight_averaging() -> Run:
    return (
        Classifier(normed()),
        data(),
        {"max_epochs": 3, "max_steps": -1, "callbacks": [StochasticWeightAveraging(1e-3, 0.5)]},
    )


# -- initial values


@healthy
def low_rank_adapters() -> Run:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(20, 32).requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(4, 20) / 5), nn.Parameter(torch.zeros(32, 4))
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.base(x) + x @ self.a.T @ self.b.T))

    return Classifier(Adapted(), lr=3e-3), data(), {}


@healthy
def zero_initialised_residuals() -> Run:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = nn.Sequential(nn.Linear(20, 20), nn.ReLU()), nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.scale * self.inner(x)

    head = nn.Linear(20, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return Classifier(nn.Sequential(Block(), Block(), head), lr=3e-3), data(), {}


@healthy
def prior_bias() -> Run:
    x, y = blobs(640, k=10)
    net = mlp(k=1)
    nn.init.constant_(net[2].bias, -math.log(9))
    loss = lambda z, t: F.binary_cross_entropy_with_logits(z.squeeze(1), (t == 0).float())  # noqa: E731
    return Classifier(net, loss), loader(x, y, batch_size=64), {}


@healthy
def warm_start() -> Run:
    net, known = pretrained(mlp())
    return Classifier(net, lr=1e-4), known, {}


@healthy
def pruned() -> Run:
    net, known = pretrained(mlp())
    for layer in (net[0], net[2]):
        prune.l1_unstructured(layer, "weight", 0.6)
    return Classifier(net), known, {}


@healthy
def weight_norm() -> Run:
    net = mlp()
    parametrizations.weight_norm(net[0])
    return Classifier(net), data(), {}


# -- frozen parts, teachers, averages


class Transfer(Classifier):
    def __init__(self, everything: bool) -> None:
        net, self.known = pretrained(normed())
        super().__init__(net, lr=3e-3)
        self.backbone, self.head, self.everything = net[:3], nn.Linear(32, 10), everything
        self.net = nn.Sequential(self.backbone, self.head)
        self.backbone.requires_grad_(False).eval()

    def configure_optimizers(self) -> Any:
        return AdamW(self.parameters() if self.everything else self.head.parameters(), lr=3e-3)


@healthy
def frozen_backbone() -> Run:
    module = Transfer(everything=False)
    return module, module.known, {}


@healthy
def frozen_weights_inside_the_optimizer() -> Run:
    module = Transfer(everything=True)
    return module, module.known, {}


@healthy
def backbone_finetuning() -> Run:
    class Finetuned(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Identity(), lr=3e-3)
            self.backbone = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU())
            self.head = nn.Linear(32, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.head(self.backbone(batch[0])), batch[1])

        def configure_optimizers(self) -> Any:
            return Adam((p for p in self.parameters() if p.requires_grad), lr=3e-3)

    callbacks = [BackboneFinetuning(1, lambda epoch: 1.5)]
    return Finetuned(), data(), {"max_epochs": 3, "max_steps": -1, "callbacks": callbacks}


@healthy
def moving_average() -> Run:
    class Averaged(Classifier):
        def __init__(self) -> None:
            super().__init__(normed())
            self.average = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(0.99))
            self.average.eval()

        def on_train_batch_end(self, *_: Any) -> None:
            self.average.update_parameters(self.net)

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), lr=3e-3)

    return Averaged(), data(), {}


@healthy
def distillation() -> Run:
    class Student(Classifier):
        def __init__(self, teacher: nn.Module) -> None:
            super().__init__()
            self.teacher = teacher.eval()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            scores = self.net(x)
            with torch.no_grad():
                target = (self.teacher(x) / 2).softmax(-1)
            soft = F.kl_div((scores / 2).log_softmax(-1), target, reduction="batchmean")
            return 0.5 * self.loss(scores, y) + 2 * soft

    teacher, known = pretrained(mlp())
    return Student(teacher), known, {}


@healthy
def tied_embeddings() -> Run:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.body = nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(16, 50, bias=False)
            nn.init.normal_(self.embedding.weight, std=0.1)
            self.head.weight = self.embedding.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.body(self.embedding(ids))[0]).transpose(1, 2)

    ids = (torch.arange(12) + torch.randint(0, 50, (640, 1))) % 50
    return Classifier(Tied(), lr=3e-3), loader(ids[:, :-1], ids[:, 1:]), {}


@healthy
def pooler_without_a_loss() -> Run:
    class Pooled(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(width=64))
            self.pooler = nn.Linear(4, 4)

    return Pooled(), data(), {}


@healthy
def sparse_embeddings() -> Run:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.head = nn.EmbeddingBag(2000, 16), nn.Linear(16, 10)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.rows(ids))

    y = torch.randint(0, 10, (640,))
    return Classifier(Bag(), lr=1e-2), loader(torch.randint(0, 40, (640, 6)) + 40 * y[:, None], y), {}


# -- losses


@healthy
def smoothed_and_weighted() -> Run:
    loss = nn.CrossEntropyLoss(label_smoothing=0.1, weight=torch.linspace(0.5, 2, 10))
    return Classifier(loss=loss, lr=3e-3), data(), {}


@healthy
def ignored_labels() -> Run:
    x, y = blobs(640)
    return Classifier(), loader(x, torch.where(torch.rand(640) < 0.4, -100, y)), {}


@healthy
def mixup() -> Run:
    class Mixes(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            other, share = torch.randperm(len(x)), 0.7
            scores = self.net(share * x + (1 - share) * x[other])
            return share * self.loss(scores, y) + (1 - share) * self.loss(scores, y[other])

    return Mixes(), data(), {}


@healthy
def focal() -> Run:
    def loss(scores: Tensor, y: Tensor) -> Tensor:
        plain = F.cross_entropy(scores, y, reduction="none")
        return ((1 - (-plain).exp()) ** 2 * plain).mean()

    return Classifier(loss=loss, lr=3e-3), data(), {}


@healthy
def binary_with_many_outputs() -> Run:
    x, y = blobs(640)
    loss = lambda z, t: F.binary_cross_entropy_with_logits(z, F.one_hot(t, 10).float())  # noqa: E731
    return Classifier(loss=loss), loader(x, y), {}


@healthy
def background_class() -> Run:
    return Classifier(mlp(k=11)), data(), {}


@healthy
def ensemble_against_one_target() -> Run:
    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(mlp(k=1) for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([m(x) for m in self.members])

    x, _ = blobs(640)
    return Classifier(Ensemble(), lambda p, t: ((p - t) ** 2).mean(), lr=3e-3), loader(x, x[:, :1]), {}


@healthy
def policy_gradient() -> Run:
    class Policy(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            choice = torch.distributions.Categorical(logits=self.net(x))
            action = choice.sample()
            reward = (action == y).float()
            return -(choice.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * choice.entropy().mean()

    return Policy(), data(), {}


@healthy
def variational() -> Run:
    class Vae(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=8))
            self.decoder = mlp(4, 20)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            mean, log_variance = self.net(x).chunk(2, 1)
            code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
            divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
            return F.mse_loss(self.decoder(code), x, reduction="none").sum(1).mean() + divergence

    return Vae(), data(), {}


@healthy
def gaussian_likelihood() -> Run:
    class Likelihood(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, log_variance = self.net(batch[0]).chunk(2, 1)
            return F.gaussian_nll_loss(mean, batch[0][:, :1] * 0.1, log_variance.exp())

    return Likelihood(mlp(k=2), lr=1e-2), data(), {}


class Coupling(nn.Module):
    """Shifts and scales the features that its mask leaves free, given the others."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = nn.Buffer(mask)
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 40))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.net(x * self.mask).chunk(2, 1)
        scale = scale.tanh() * (1 - self.mask)
        return x * scale.exp() + shift * (1 - self.mask), scale.sum(1)


@healthy
def normalising_flow() -> Run:
    """Half of what each network says is masked and never gets a gradient."""

    class Flow(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, total = batch[0], batch[0].new_zeros(())
            for layer in self.net:
                x, volume = layer(x)
                total = total + volume.mean()
            return x.square().sum(1).mean() / 2 - total

    mask = torch.arange(20).remainder(2).float()
    return Flow(nn.ModuleList(Coupling(m) for m in (mask, 1 - mask, mask))), data(), {}


@healthy
def contrastive() -> Run:
    class Contrastive(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            a, b = (F.normalize(self.net(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
            return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(x)))

    return Contrastive(normed()), data(), {}


@healthy
def bootstrapped_targets() -> Run:
    class Byol(Classifier):
        def __init__(self) -> None:
            super().__init__(normed())
            self.target = copy.deepcopy(self.net).requires_grad_(False)
            self.predictor = mlp(10, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            with torch.no_grad():
                wanted = self.target(x + 0.1 * torch.randn_like(x))
            return 2 - 2 * F.cosine_similarity(self.predictor(self.net(x)), wanted).mean()

        def on_train_batch_end(self, *_: Any) -> None:
            with torch.no_grad():
                for slow, quick in zip(self.target.parameters(), self.net.parameters(), strict=True):
                    slow.lerp_(quick, 0.01)

    return Byol(), data(), {}


@healthy
def q_learning() -> Run:
    class Dqn(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=4))
            self.target = copy.deepcopy(self.net).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            with torch.no_grad():
                wanted = (y % 2).float() + 0.9 * self.target(x.roll(1, 0)).max(1).values
            return F.smooth_l1_loss(self.net(x).gather(1, (y % 4)[:, None]).squeeze(1), wanted)

    return Dqn(), data(), {}


# -- data


@healthy
def oversampled() -> Run:
    x, y = blobs(200)
    return Classifier(), DataLoader(TensorDataset(x, y), 32, sampler=WeightedRandomSampler(torch.rand(200), 640)), {}


@healthy
def overfitting_one_batch_on_purpose() -> Run:
    return Classifier(lr=1e-2), data(), {"overfit_batches": 1}


@healthy
def ragged_last_batch() -> Run:
    return Classifier(), data(32, 200), {}


@healthy
def batches_of_two() -> Run:
    return Classifier(), data(2, 200), {}


@healthy
def imbalanced() -> Run:
    x, y = blobs(640, k=2)
    kept = (y == 0) | (torch.rand(640) < 0.06)
    return Classifier(mlp(k=2)), loader(x[kept], y[kept], batch_size=64), {"max_steps": 12}
