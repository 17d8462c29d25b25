"""Healthy runs that begin trained, sure or at rest, and parts of them that stand still by design."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import Callback
from torch import Tensor, nn
from torch.optim import SGD, Adam
from torch.optim import lr_scheduler as lrs

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .parts import cnn, images


@healthy
def single_samples_of_a_trained_model() -> Run:
    x, y = blobs(600, k=4)
    net, rows = mlp(k=4), torch.arange(600) % 300
    optimizer = Adam(net.parameters(), 0.01)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return Classifier(net, lr=1e-4), loader(x, y, batch_size=1), {"max_steps": 400}


@healthy
def answers_of_a_sharp_and_slow_teacher() -> Run:
    class Taught(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=32))
            self.slow = mlp(k=32).requires_grad_(False)
            self.register_buffer("centre", torch.zeros(1, 32))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, other = (batch[0] + 0.3 * torch.randn_like(batch[0]) for _ in range(2))
            with torch.no_grad():
                for slow, quick in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                    slow.lerp_(quick, 0.01)
                answers = 10 * self.slow(one)
                wanted = ((answers - self.centre) / 0.4).softmax(1)
                self.centre.lerp_(answers.mean(0, keepdim=True), 0.1)
            return -(wanted * (100 * self.net(other)).log_softmax(1)).sum(1).mean()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3)

    return Taught(), loader(*blobs()), {}


@healthy
def new_head_alone_at_first() -> Run:
    class Grows(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=6))
            self.body, self.old = nn.Linear(20, 32), nn.Linear(32, 4)
            self.net = nn.Linear(32, 10)
            self.before = deepcopy(nn.Sequential(self.body, nn.ReLU(), self.old)).requires_grad_(False)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            seen = torch.relu(self.body(x))
            kept = F.kl_div(self.old(seen).log_softmax(1), self.before(x).softmax(1), reduction="batchmean")
            return F.cross_entropy(self.net(seen), y) + kept

        def configure_optimizers(self) -> Any:
            kept = [*self.body.parameters(), *self.old.parameters()]
            optimizer = SGD([{"params": self.net.parameters()}, {"params": kept}], 0.05)
            rates = [lambda step: 1.0, lambda step: float(step >= 50)]
            return [optimizer], [{"scheduler": lrs.LambdaLR(optimizer, rates), "interval": "step"}]

    return Grows(), loader(*blobs()), {"max_steps": 60}


@healthy
def inverse_of_a_flow_logged_beside_its_loss() -> Run:
    class Flow(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = batch[0].chunk(2, 1)
            scale, shift = self.net(a).chunk(2, 1)
            scale = scale.tanh()
            made = b * scale.exp() + shift
            self.log("back", F.mse_loss((made - shift) / scale.exp(), b))
            return (made.square() / 2 - scale).sum(1).mean() + a.square().sum(1).mean() / 2

    return Flow(mlp(10, 20)), loader(blobs()[0]), {"max_steps": 60}


@healthy
def labels_softened_by_a_callback() -> Run:
    class Softens(Callback):
        def on_train_epoch_end(self, *args: Any) -> None:
            soft.mul_(0.95).add_(0.005)

    x, y = blobs()
    soft = F.one_hot(y, 10).float()
    return Classifier(), loader(x, soft), {"callbacks": [Softens()]}


@healthy
def one_batch_an_epoch_on_one_cycle() -> Run:
    class Cycle(Classifier):
        def configure_optimizers(self) -> Any:
            optimizer = SGD(self.parameters(), 0.05)
            return [optimizer], [lrs.OneCycleLR(optimizer, 0.2, total_steps=200)]

    return Cycle(), loader(*blobs(), batch_size=256), {"max_epochs": 60, "max_steps": -1}


@healthy
def frozen_statistics_whose_weights_learn() -> Run:
    class Frozen(Classifier):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            for layer in self.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
            return self

    module, (x, y) = Frozen(cnn()), images()
    with torch.no_grad():
        for _ in range(20):
            module.net(x[:64])
    return module.train(), loader(x, y), {}


@healthy
def statistics_folded_into_weights_and_biases() -> Run:
    module, (x, y) = Classifier(cnn()), images()
    with torch.no_grad():
        for _ in range(20):
            module.net(x[:64])
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.div_((layer.running_var + layer.eps).sqrt())
                layer.bias.sub_(layer.running_mean * layer.weight)
                layer.running_mean.zero_()
                layer.running_var.fill_(1.0)
                layer.eval()
    return module, loader(x, y), {}


@healthy
def neighbours_told_by_products_of_drawn_codes() -> Run:
    class Graph(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32), lr=1e-2)
            self.mean, self.scale = nn.Linear(32, 16), nn.Linear(32, 16)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            hidden = self.net(x).relu()
            mean, scale = self.mean(hidden), self.scale(hidden)
            code = mean + scale.exp() * torch.randn_like(mean)
            near = torch.sigmoid(code @ code.t())
            kl = -0.5 * (1 + 2 * scale - mean**2 - (2 * scale).exp()).sum(1).mean() / len(x)
            return F.binary_cross_entropy(near.view(-1), (y[:, None] == y).float().view(-1)) + kl

    return Graph(), loader(*blobs()), {}


@healthy
def edges_told_by_products_of_drawn_codes() -> Run:
    class Edges(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 64), lr=1e-2)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            mean, logvar = self.net(x).chunk(2, 1)
            code = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
            other = torch.randperm(len(x))
            scores = (code * code[other]).sum(1)
            kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
            return F.binary_cross_entropy_with_logits(scores, (y == y[other]).float()) + 0.01 * kl

    return Edges(), loader(*blobs()), {}


def trained(net: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    optimizer = Adam(net.parameters(), 0.01)
    for rows in torch.arange(len(x)).repeat(20).split(64):
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net


@healthy
def other_classes_under_a_penalty_on_leaving_old_weights() -> Run:
    x, y = blobs(640)
    old = y < 5

    class Second(Classifier):
        def __init__(self) -> None:
            super().__init__(trained(mlp(), x[old], y[old]))
            self.kept = [p.detach().clone() for p in self.net.parameters()]

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            far = sum((p - q).square().sum() for p, q in zip(self.net.parameters(), self.kept, strict=True))
            return super().training_step(batch, batch_idx) + 0.01 * far

    return Second(), loader(x[~old], y[~old]), {}


@healthy
def preferences_beside_the_model_before_them() -> Run:
    x, y = blobs(640)

    class Preferred(Classifier):
        def __init__(self) -> None:
            super().__init__(trained(mlp(), x, y), lr=1e-4)
            self.before = deepcopy(self.net).requires_grad_(False).eval()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, better, worse = batch
            now, before = (net(x).log_softmax(1) for net in (self.net, self.before))
            gain = (now - before).gather(1, torch.stack([better, worse], 1))
            return -F.logsigmoid(0.1 * (gain[:, 0] - gain[:, 1])).mean()

    return Preferred(), loader(x, y, (y + 1) % 10), {}


@healthy
def sum_whose_gradients_are_clipped() -> Run:
    return Classifier(loss=nn.CrossEntropyLoss(reduction="sum")), loader(*blobs()), {"gradient_clip_val": 1.0}


@healthy
def images_whose_gradients_match_in_networks_drawn_anew() -> Run:
    class Condensed(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Identity(), lr=0.02)
            self.images = nn.Parameter(torch.randn(20, 20))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            net = mlp()
            wanted = torch.autograd.grad(self.loss(net(batch[0]), batch[1]), net.parameters())
            labels = torch.arange(10).repeat(2)
            made = torch.autograd.grad(self.loss(net(self.images), labels), net.parameters(), create_graph=True)
            pairs = zip(wanted, made, strict=True)
            return sum(1 - F.cosine_similarity(a.flatten(), b.flatten(), dim=0) for a, b in pairs)

    return Condensed(), loader(*blobs()), {}


@healthy
def halves_that_hand_features_and_gradients_over() -> Run:
    class Halves(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.automatic_optimization = False
            self.server = nn.Linear(32, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            features = self.net(batch[0]).relu()
            given = features.detach().requires_grad_()
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.server(given), batch[1]))
            features.backward(given.grad)
            optimizer.step()

    return Halves(), loader(*blobs()), {}
