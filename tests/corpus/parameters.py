"""Parameters that start, stay or end wrong, or that no optimizer knows."""

import copy
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adam

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, fault
from .parts import Halves, SequenceEncoder, cnn, deep, images, text, tones


class Toggled(Classifier):
    """Two optimizers in manual optimisation, the second of which is toggled; ``until`` says when that ends."""

    def __init__(self, until: Callable[[int], bool]) -> None:
        super().__init__(lr=3e-3)
        self.until, self.automatic_optimization = until, False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        body, head = self.optimizers()
        self.toggle_optimizer(head)
        self.update(x, y, head)
        if self.until(batch_idx):
            self.untoggle_optimizer(head)
        self.update(x, y, body)

    def update(self, x: Tensor, y: Tensor, optimizer: Any) -> None:
        optimizer.zero_grad()
        self.manual_backward(self.loss(self.net(x), y))
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return [Adam(self.net[0].parameters(), 3e-3), Adam(self.net[2].parameters(), 3e-3)]


class Adversaries(L.LightningModule):
    """A generator and a discriminator, in manual optimisation; ``split`` gives the parameters of each optimizer."""

    def __init__(self, split: Callable[[Any], tuple[Any, ...]]) -> None:
        super().__init__()
        self.split, self.automatic_optimization = split, False
        self.generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 20))
        self.discriminator = nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, *judges = batch[0], *self.optimizers()
        fake = self.generator(torch.randn(len(real), 8))
        told = F.softplus(-self.discriminator(real)) + F.softplus(self.discriminator(fake.detach()))
        self.update(judges[1], told.mean())
        self.update(judges[0], F.softplus(-self.discriminator(fake)).mean())

    def update(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return [Adam(parameters, 2e-4) for parameters in self.split(self)]


@fault("WD312")
def generator_that_also_trains_the_discriminator(fixed: bool) -> Run:
    def split(module: Any) -> tuple[Any, ...]:
        part = module.generator if fixed else module
        return part.parameters(), module.discriminator.parameters()

    return Adversaries(split), loader(blobs(640)[0]), {}


@fault("WD315", also=("WD506", "WD314"))
def optimizer_left_toggled(fixed: bool) -> Run:
    return Toggled(lambda i: fixed), loader(*blobs(640)), {}


@fault("WD302", "WD301", "WD304", also=("WD141", "WD316", "WD217"))
def everything_zero() -> Run:
    net = deep(2)
    for value in net.parameters():
        nn.init.zeros_(value)
    return Classifier(net), loader(*blobs()), {}


@fault("WD302", also=("WD316", "WD315"))
def both_factors_of_an_adapter_zero(fixed: bool) -> Run:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.head = nn.Linear(20, 32).requires_grad_(False), nn.Linear(32, 10)
            self.down = nn.Parameter(torch.randn(4, 20) / 5 if fixed else torch.zeros(4, 20))
            self.up = nn.Parameter(torch.zeros(32, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.base(x) + x @ self.down.T @ self.up.T))

    return Classifier(Adapted(), lr=3e-3), loader(*blobs()), {}


@fault("WD304")
def constant_weights(fixed: bool) -> Run:
    net = mlp()
    if not fixed:
        nn.init.constant_(net[0].weight, 0.05)
        nn.init.zeros_(net[0].bias)
        net[2].weight.data = torch.linspace(-0.1, 0.1, 10)[:, None].expand(10, 32).clone()
    return Classifier(net, lr=3e-3), loader(*blobs()), {}


@fault("WD301", also=("WD302", "WD214", "WD141", "WD316"))
def layer_wiped_in_a_hook() -> Run:
    class Wiped(Classifier):
        def on_train_batch_end(self, *_: Any) -> None:
            if self.global_step == 6:
                with torch.no_grad():
                    self.net[0].weight.zero_()

    return Wiped(), loader(*blobs()), {}


@fault("WD303", "WD142", also=("WD211",))
def weights_divided_by_their_norm() -> Run:
    class Normed(Classifier):
        def on_train_batch_end(self, *_: Any) -> None:
            with torch.no_grad():
                self.net[2].bias.div_(self.net[2].bias.sum() * 0)

    return Normed(), loader(*blobs()), {}


@fault("WD311")
def head_made_when_training_starts(fixed: bool) -> Run:
    class Late(Classifier):
        def setup(self, stage: str) -> None:
            if fixed:
                self.head = nn.Linear(32, 10)

        def on_train_start(self) -> None:
            if not fixed:
                self.head = nn.Linear(32, 10)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.head(torch.relu(self.net(batch[0]))), batch[1])

    return Late(nn.Linear(20, 32)), loader(*blobs()), {}


@fault("WD311")
def optimizer_of_the_head_alone(fixed: bool) -> Run:
    class Head(Halves):
        def configure_optimizers(self) -> Any:
            return Adam(self.parameters() if fixed else self.head.parameters(), 1e-3)

    return Head(), loader(*images()), {}


@fault("WD311")
def group_left_out_of_the_decay_split() -> Run:
    class Split(Classifier):
        def configure_optimizers(self) -> Any:
            decay = [p for n, p in self.named_parameters() if n.endswith("weight") and "norm" not in n]
            rest = [p for n, p in self.named_parameters() if n.endswith("bias") and "norm" in n]
            return torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest}], 3e-3)

    return Split(SequenceEncoder()), loader(*tones()), {}


@fault("WD311", "WD312", also=("WD316", "WD141"))
def optimizer_of_another_instance() -> Run:
    class Twin(Classifier):
        def configure_optimizers(self) -> Any:
            return Adam(copy.deepcopy(self).parameters(), 1e-3)

    return Twin(), loader(*blobs(640)), {}


@fault("WD311", "WD312", also=("WD316",))
def head_replaced_after_the_optimizer_was_made() -> Run:
    class Replaced(Halves):
        def on_train_start(self) -> None:
            self.head = nn.Linear(24, 10)

    return Replaced(nn.Linear(20, 24)), loader(*blobs()), {}


@fault("WD311", "WD312", also=("WD316", "WD144"))
def two_optimizers_for_one_player() -> Run:
    class Game(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(8, 2))
            self.automatic_optimization = False
            self.critic = mlp(2, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            first, second = self.optimizers()
            made = self.net(torch.randn(len(batch[0]), 8))
            one, zero = torch.ones(len(made), 1), torch.zeros(len(made), 1)
            bce = F.binary_cross_entropy_with_logits
            second.zero_grad()
            self.manual_backward(bce(self.critic(batch[0][:, :2]), one) + bce(self.critic(made.detach()), zero))
            second.step()
            first.zero_grad()
            self.manual_backward(bce(self.critic(made), one))
            first.step()

        def configure_optimizers(self) -> Any:
            return Adam(self.net.parameters(), 1e-3), Adam(self.net.parameters(), 1e-3)

    return Game(), loader(*blobs()), {"max_steps": 60}


@fault("WD313", also=("WD404", "WD403"))
def layers_in_a_plain_list(fixed: bool) -> Run:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Linear(20, 32), nn.Linear(32, 32)]
            self.hidden: Any = nn.ModuleList(layers) if fixed else layers
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.hidden:
                x = torch.relu(layer(x))
            return self.head(x)

    return Classifier(Listed()), loader(*blobs()), {}


@fault("WD313", also=("WD404", "WD403"))
def heads_in_a_dict() -> Run:
    class Tasks(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 32))
            self.heads = {"kind": nn.Linear(32, 10), "sign": nn.Linear(32, 2)}

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            h, y = torch.relu(self.net(batch[0])), batch[1]
            return self.loss(self.heads["kind"](h), y) + self.loss(self.heads["sign"](h), y % 2)

    return Tasks(), loader(*blobs()), {}


@fault("WD313", also=("WD141",))
def layer_made_anew_in_forward() -> Run:
    class Fresh(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(nn.Linear(20, 32)(x)))

    return Classifier(Fresh()), loader(*blobs(640)), {}


@fault("WD313", also=("WD404", "WD403"))
def trainable_tensor_that_is_no_parameter() -> Run:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = mlp(), torch.ones(10, requires_grad=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) * self.scale

    return Classifier(Scaled()), loader(*blobs()), {}


@fault("WD315", also=("WD141",))
def all_but_a_bias_frozen() -> Run:
    net = cnn()
    for name, value in net.named_parameters():
        value.requires_grad_(name == "9.bias")
    return Classifier(net), loader(*images()), {}


@fault("WD319", "WD318", "WD301", "WD317", also=("WD141",))
def decay_that_eats_the_weights(fixed: bool) -> Run:
    decay = 1e-4 if fixed else 9.0
    return Classifier(cnn(), optimizer=SGD, lr=0.05, weight_decay=decay), loader(*images()), {}


@fault("WD319", "WD301", also=("WD141",))
def weights_clamped_to_nothing(fixed: bool) -> Run:
    class Clamping(Classifier):
        def on_train_batch_end(self, *_: Any) -> None:
            limit = 1.0 if fixed else 1e-3
            with torch.no_grad():
                for p in self.parameters():
                    p.clamp_(-limit, limit)

    return Clamping(deep(2)), loader(*blobs()), {}


class Tied(nn.Module):
    """Next tokens, with one matrix for embedding and head: (n, t) to scores (n, v, t)."""

    def __init__(self, v: int = 48) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(v, 24), nn.Linear(24, v, bias=False)
        self.cell = nn.GRU(24, 24, batch_first=True)
        nn.init.normal_(self.token.weight, std=0.05)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.cell(self.token(ids))[0]).transpose(1, 2)


@fault("WD312")
def tied_by_data(fixed: bool) -> Run:
    net = Tied()
    if fixed:
        net.head.weight = net.token.weight
    else:
        net.head.weight.data = net.token.weight.data
    ids = text()
    return Classifier(net, lr=3e-3), loader(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()), {}


@fault("WD315")
def frozen_by_an_attribute_of_a_module(fixed: bool) -> Run:
    class Frozen(Halves):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 24))
            if fixed:
                self.backbone.requires_grad_(False)
            else:
                self.backbone.requires_grad = False

    return Frozen(), loader(*blobs()), {}


@fault("WD315")
def filter_that_lets_through_a_bias(fixed: bool) -> Run:
    class Filtered(Classifier):
        def configure_optimizers(self) -> Any:
            for name, value in self.named_parameters():
                value.requires_grad_(name.startswith("net.9" if fixed else "net.9.b"))
            return Adam([p for p in self.parameters() if p.requires_grad], 1e-2)

    return Filtered(cnn()), loader(*images()), {}
