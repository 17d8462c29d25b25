"""Healthy runs with loops, data and optimizers out of the ordinary."""

import copy
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from tests.runs import Classifier, Manual, blobs, fp16, loader, mlp
from tests.zoo import ZOO

from .case import CASES, Case, Run, healthy
from .modes import Averages
from .parts import Halves, SequenceEncoder, cnn, images, line, tones


def _with_defaults(build: Any) -> Any:
    def made() -> Run:
        module, data, settings = build()
        return module, data, {"max_epochs": -1, **settings}

    return made


CASES.update({name: Case(name, "zoo", _with_defaults(build)) for name, build in ZOO.items()})


def logistic(n: int = 512) -> tuple[Tensor, Tensor]:
    x, y = line(n)
    return x, (y > 0).float()


@healthy
def inner_loops() -> Run:
    class Maml(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            names = dict(self.net.named_parameters())
            slopes = torch.autograd.grad(self.loss(self.net(x[:16]), y[:16]), names.values(), create_graph=True)
            quick = {n: p - 0.1 * g for (n, p), g in zip(names.items(), slopes, strict=True)}
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(functional_call(self.net, quick, (x[16:],)), y[16:]))
            optimizer.step()

    return Maml(lr=3e-3), loader(*blobs(512), drop_last=True), {}


@healthy
def easy_samples_first() -> Run:
    class Curriculum(L.LightningDataModule):
        def train_dataloader(self) -> Any:
            x, y = blobs(640)
            order = (x - torch.stack([x[y == k].mean(0) for k in range(10)])[y]).norm(dim=1).argsort()
            return loader(x[order], y[order], shuffle=False)

    return Classifier(lr=3e-3), Curriculum(), {}


@healthy
def cyclic_rate() -> Run:
    class Cycles(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.01, momentum=0.9)
            schedule = {"scheduler": lrs.CyclicLR(optimizer, 1e-4, 0.1, step_size_up=8), "interval": "step"}
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    return Cycles(cnn()), loader(*images()), {}


@healthy
def rate_per_layer() -> Run:
    class Layered(Classifier):
        def configure_optimizers(self) -> Any:
            groups = [
                {"params": layer.parameters(), "lr": 3e-3 * 0.5**i} for i, layer in enumerate(reversed(list(self.net)))
            ]
            return AdamW([g for g in groups if (g.update(params=list(g["params"])) or g["params"])])

    return Layered(cnn()), loader(*images()), {}


@healthy
def frozen_statistics_in_fine_tuning() -> Run:
    class Frozen(Halves):
        def on_train_batch_start(self, *_: Any) -> None:
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()

    module = Frozen()
    x, y = images()
    with torch.no_grad():
        for _ in range(40):
            module.backbone(x[:64])
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eval().requires_grad_(False)
    return module, loader(x, y), {}


@healthy
def tiny_dataset() -> Run:
    return Classifier(mlp(k=2), lr=1e-2), loader(*blobs(12, k=2), batch_size=4), {"max_epochs": 30, "max_steps": -1}


@healthy
def one_full_batch() -> Run:
    return Classifier(lr=1e-2), loader(*blobs(200), batch_size=200), {"max_steps": 60}


@healthy
def average_of_weights_in_validation() -> Run:
    class Averages(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.slow = AveragedModel(self.net)
            self.mean = MeanMetric()

        def on_train_batch_end(self, *_: Any) -> None:
            self.slow.update_parameters(self.net)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.mean.update(self.loss(self.slow(batch[0]), batch[1]))
            self.log("mean", self.mean)

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 3e-3)

    settings = {"validation": loader(*blobs(64)), "val_check_interval": 5, "num_sanity_val_steps": 1}
    return Averages(), loader(*blobs()), settings


@healthy
def teacher_of_momentum() -> Run:
    class Dino(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=16))
            self.teacher = copy.deepcopy(self.net).requires_grad_(False)
            self.register_buffer("centre", torch.zeros(16))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (batch[0] + 0.1 * torch.randn_like(batch[0]) for _ in range(2))
            with torch.no_grad():
                wanted = self.teacher(a)
                self.centre.lerp_(wanted.mean(0), 0.1)
                wanted = ((wanted - self.centre) / 0.04).softmax(1)
            return -(wanted * (self.net(b) / 0.1).log_softmax(1)).sum(1).mean()

        def on_before_zero_grad(self, *_: Any) -> None:
            for slow, quick in zip(self.teacher.parameters(), self.net.parameters(), strict=True):
                slow.data.lerp_(quick.data, 0.004)

    return Dino(), loader(*blobs()), {}


@healthy
def pretrained_and_slow() -> Run:
    net, (x, y) = cnn(), images()
    optimizer = Adam(net.parameters(), 5e-3)
    for _ in range(25):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return Classifier(net, optimizer=AdamW, lr=2e-5), loader(x, y), {}


@healthy
def rare_positives() -> Run:
    x = torch.randn(2048, 20)
    y = (x[:, 0] > 2.0).float()
    loss = lambda z, t: F.binary_cross_entropy_with_logits(z[:, 0], t, pos_weight=torch.tensor(20.0))  # noqa: E731
    return Classifier(mlp(k=1), loss, lr=3e-3), loader(x, y, batch_size=64), {}


@healthy
def loaders_side_by_side() -> Run:
    class Both(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            (x, y), (other,) = batch["labelled"], batch["bare"]
            sure = self.net(other).softmax(1).max(1)
            keep = sure.values.detach() > 0.8
            guess = F.cross_entropy(self.net(other + 0.1), sure.indices, reduction="none")
            return self.loss(self.net(x), y) + (guess * keep).mean()

    loaders = {"labelled": loader(*blobs()), "bare": loader(torch.randn(512, 20), batch_size=64)}
    return Both(lr=3e-3), L.pytorch.utilities.CombinedLoader(loaders, "max_size_cycle"), {}


@healthy
def alternating_optimizers_of_two_kinds() -> Run:
    class Alternates(Manual):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.head = nn.Linear(32, 10)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()[batch_idx // 4 % 2]
            self.toggle_optimizer(optimizer)
            loss = self.loss(self.head(torch.relu(self.net(batch[0]))), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)

        def configure_optimizers(self) -> Any:
            return RMSprop(self.net.parameters(), 1e-3), SGD(self.head.parameters(), 0.1)

    return Alternates(), loader(*blobs()), {"max_steps": 60}


@healthy
def labels_noisy_and_sparse() -> Run:
    x, y = blobs(640, k=20)
    y = torch.where(torch.rand(640) < 0.2, torch.randint(0, 20, (640,)), y)
    return Classifier(mlp(k=20), optimizer=RMSprop), loader(x, y, batch_size=8), {"max_steps": 60}


@healthy
def accumulation_with_scaling_and_clipping() -> Run:
    settings = {
        "plugins": [fp16(2.0**14)],
        "accumulate_grad_batches": 3,
        "gradient_clip_val": 0.5,
        "max_steps": 12,
    }
    return Classifier(SequenceEncoder(), optimizer=AdamW, lr=2e-3), loader(*tones(), batch_size=16), settings


@healthy
def adversarial_samples() -> Run:
    class Hardened(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            moved = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.loss(self.net(moved), y), moved)
            return self.loss(self.net(x + 0.05 * slope.sign()), y)

    return Hardened(lr=3e-3), loader(*blobs()), {}


@healthy
def rows_of_names_and_numbers() -> Run:
    class Named(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.net(batch["x"]["values"]), batch["y"])

    rows = [{"x": {"values": a, "name": f"row {i}"}, "y": b} for i, (a, b) in enumerate(zip(*logistic(), strict=True))]
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    return Named(net, F.binary_cross_entropy_with_logits, lr=3e-3), DataLoader(rows, 32, shuffle=True), {}


@healthy
def gradual_unfreezing() -> Run:
    class Thaws(Halves):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 24), lr=3e-3)
            self.backbone.requires_grad_(False)

        def on_train_epoch_start(self) -> None:
            self.backbone.requires_grad_(self.current_epoch > 0)

    return Thaws(), loader(*blobs()), {"max_epochs": 4, "max_steps": -1}


@healthy
def random_layers_skipped() -> Run:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 24), nn.Linear(24, 10)
            self.blocks = nn.ModuleList(nn.Linear(24, 24) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            for block in self.blocks:
                if not self.training or torch.rand(()) < 0.6:
                    h = h + torch.relu(block(h))
            return self.head(h)

    return Classifier(Skips(), lr=3e-3), loader(*blobs()), {}


@healthy
def average_of_a_network_whose_statistics_are_frozen() -> Run:
    return Averages(buffers=False, frozen=True), loader(*blobs()), {"max_steps": 60, "validation": loader(*blobs())}
