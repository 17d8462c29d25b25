"""Gradients that vanish, explode, pile up or never arrive."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
from .parts import Halves, Recurrent, deep, images, tones


@fault("WD212", "WD141")
def twelve_sigmoid_layers(fixed: bool) -> Run:
    return Classifier(deep(2, nn.ReLU) if fixed else deep(12, nn.Sigmoid)), loader(*blobs(640)), {}


@fault("WD212", "WD141", also=("WD316",))
def tiny_weights_in_a_deep_network() -> Run:
    net = deep(9, nn.Tanh)
    for layer in net[:-1:2]:
        nn.init.normal_(layer.weight, std=0.01)
    return Classifier(net), loader(*blobs(640)), {}


@fault("WD212", also=("WD141", "WD316"))
def two_hundred_layers() -> Run:
    return Classifier(deep(200, nn.ReLU)), loader(*blobs(640)), {"max_steps": 24}


class Unrolled(nn.Module):
    """A ReLU recurrence of the given gain, one number at the end."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.inlet, self.again, self.head = nn.Linear(8, 24), nn.Linear(24, 24, bias=False), nn.Linear(24, 1)
        nn.init.orthogonal_(self.again.weight, gain)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 24)
        for part in x.unbind(1):
            h = torch.relu(self.inlet(part) + self.again(h))
        return self.head(h).squeeze(1)


@fault("WD213", "WD101", "WD317", "WD142", "WD144", also=("WD211", "WD303", "WD143", "WD214"))
def recurrence_that_explodes(fixed: bool) -> Run:
    x, y = tones()
    y = (y.float() - 1.5) / 1.1
    return Classifier(Unrolled(0.5 if fixed else 2.4), F.mse_loss, SGD, lr=3e-3 if fixed else 1e-4), loader(x, y), {}


@fault("WD214")
def biases_far_below_zero(fixed: bool) -> Run:
    net = deep(2)
    if not fixed:
        nn.init.constant_(net[0].bias, -9.0)
    return Classifier(net), loader(*blobs()), {}


@fault("WD123", "WD101", "WD214", "WD141", also=("WD213", "WD317", "WD143", "WD144", "WD217", "WD316"))
def first_step_kills_all_units() -> Run:
    x, y = blobs(1280)
    return Classifier(optimizer=SGD, lr=0.05), loader((x * 40 + 128).clamp(0, 255), y), {"max_steps": 60}


@fault("WD215", "WD212", also=("WD101", "WD213", "WD141"))
def tanh_driven_to_its_ends() -> Run:
    net = deep(3, nn.Tanh)
    for layer in (net[0], net[2], net[4]):
        nn.init.normal_(layer.weight, std=4.0)
    return Classifier(net), loader(*blobs()), {}


@fault("WD215", "WD212", also=("WD101", "WD213", "WD141"))
def tanh_called_on_what_is_far_too_large(fixed: bool) -> Run:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Linear(20, 64), nn.Linear(64, 64), nn.Linear(64, 10)
            if not fixed:
                for layer in (self.first, self.second):
                    nn.init.normal_(layer.weight, std=3.0)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            return self.head(self.second(h).tanh())

    return Classifier(Hidden()), loader(*blobs()), {}


class Ordered(Manual):
    """Manual optimisation with its calls in a given order."""

    order = ("zero", "backward", "step")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(self.net(batch[0]), batch[1])
        optimizer = self.optimizers()
        calls = {"zero": optimizer.zero_grad, "step": optimizer.step, "backward": lambda: self.manual_backward(loss)}
        for name in self.order:
            calls[name]()
        return loss.detach()


@fault("WD216", also=("WD213", "WD143", "WD144", "WD317"))
def gradients_never_cleared(fixed: bool) -> Run:
    module = Ordered(optimizer=SGD, lr=0.02)
    module.order = module.order if fixed else ("backward", "step")
    return module, loader(*blobs()), {}


@fault("WD216", also=("WD213", "WD143", "WD144", "WD317"))
def one_of_two_optimizers_never_cleared() -> Run:
    class Two(Halves):
        def __init__(self) -> None:
            super().__init__(nn.Linear(20, 24))
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            body, head = self.optimizers()
            head.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            body.step()
            head.step()

        def configure_optimizers(self) -> Any:
            return SGD(self.backbone.parameters(), 0.02), SGD(self.head.parameters(), 0.02)

    return Two(), loader(*blobs()), {}


@fault("WD217", also=("WD316", "WD314", "WD506", "WD141"))
def cleared_before_the_step(fixed: bool) -> Run:
    module = Ordered(Recurrent())
    module.order = module.order if fixed else ("backward", "zero", "step")
    return module, loader(*tones()), {}


@fault("WD217", also=("WD316", "WD314", "WD506", "WD141"))
def step_before_backward(fixed: bool) -> Run:
    module = Ordered(lr=3e-3)
    module.order = module.order if fixed else ("zero", "step", "backward")
    return module, loader(*blobs()), {}


@fault("WD217", "WD316", first=("WD217",), also=("WD141",))
def clipped_to_nothing(fixed: bool) -> Run:
    limit = 1.0 if fixed else 1e-9
    return Classifier(optimizer=SGD, lr=0.1), loader(*blobs()), {"gradient_clip_val": limit}


@fault("WD217", "WD314", also=("WD316", "WD141"))
def hook_that_clears_gradients() -> Run:
    class Clears(Classifier):
        def on_after_backward(self) -> None:
            self.zero_grad()

    return Clears(), loader(*blobs()), {}


@fault("WD314")
def detach_between_the_halves(fixed: bool) -> Run:
    class Cut(Halves):
        def features(self, x: Tensor) -> Tensor:
            return super().features(x) if fixed else super().features(x).detach()

    return Cut(), loader(*images()), {}


@fault("WD314")
def encoder_behind_a_numpy_call() -> Run:
    class Round(Halves):
        def features(self, x: Tensor) -> Tensor:
            return torch.from_numpy(super().features(x).detach().numpy().clip(0, 6))

    return Round(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 24))), loader(*blobs()), {}


@fault("WD314")
def large_head_without_a_loss() -> Run:
    class Extra(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            self.extra(scores)
            return self.loss(scores, batch[1])

    return Extra(), loader(*blobs()), {}


@fault("WD318", "WD144", also=("WD141", "WD317", "WD143"))
def maximising_by_mistake(fixed: bool) -> Run:
    return Classifier(lr=3e-3, maximize=not fixed), loader(*blobs()), {}


@fault("WD141", also=("WD133",))
def labels_shuffled_apart() -> Run:
    x, _ = blobs(12_000)
    return Classifier(mlp(width=16)), loader(x, torch.randint(0, 10, (12_000,))), {"max_steps": 360}


@fault("WD214")
def softmax_over_one_output(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(z[:, 0].sigmoid() if fixed else z.softmax(1)[:, 0], y)

    x, y = blobs(k=2)
    return Classifier(mlp(k=1), loss), loader(x, y.float()), {}


@fault("WD214")
def pairs_of_a_sample_with_itself(fixed: bool) -> Run:
    class Contrasting(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            other = x + 0.1 * torch.randn_like(x)
            distance = (self.net(x) - self.net(other if fixed else x)).square().sum(1)
            return distance.mean() + 0 * self.net(x).logsumexp(1).mean()

    return Contrasting(), loader(*blobs()), {}


@fault("WD505", also=("WD214", "WD141"))
def function_that_drops_everything(fixed: bool) -> Run:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 32), nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            return self.head(F.dropout(h, 0.1 if fixed else 1.0, training=self.training))

    return Classifier(Dropping(), lr=3e-3), loader(*blobs()), {}


@fault("WD218")
def clipped_in_the_step_of_automatic_optimisation() -> Run:
    class Clips(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            return loss

    return Clips(), loader(*blobs()), {}


@fault("WD218")
def clipped_before_backward_by_hand(fixed: bool) -> Run:
    class Clips(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            loss = super().training_step(batch, batch_idx)
            optimizer.zero_grad()
            if not fixed:
                self.clip_gradients(optimizer, 1.0, "norm")
            self.manual_backward(loss)
            if fixed:
                self.clip_gradients(optimizer, 1.0, "norm")
            optimizer.step()

    return Clips(), loader(*blobs()), {}


@fault("WD218")
def clipped_after_gradients_were_set_to_zero(fixed: bool) -> Run:
    class Clips(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            loss = Classifier.training_step(self, batch, batch_idx)
            optimizer.zero_grad(set_to_none=False)
            if not fixed:
                self.clip_gradients(optimizer, 1.0, "norm")
            self.manual_backward(loss)
            if fixed:
                self.clip_gradients(optimizer, 1.0, "norm")
            optimizer.step()

    return Clips(), loader(*blobs()), {}


@fault("WD213", also=("WD101", "WD142", "WD144", "WD316"))
def recurrence_whose_gradients_have_no_finite_square(fixed: bool) -> Run:
    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.again = nn.Parameter(torch.randn(24, 24) * (0.2 if fixed else 0.9))
            self.inlet, self.head = nn.Linear(8, 24), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = x.new_zeros(len(x), 24)
            for step in x.unbind(1):
                h = torch.relu(h @ self.again + self.inlet(step))
            return self.head(h)

    x, y = tones(t=40)
    return Classifier(Unrolled(), F.mse_loss), loader(x, y[:, None].float() - 1.5), {}


@fault("WD314")
def second_loss_that_is_only_logged(fixed: bool) -> Run:
    class Tasks(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Sequential(nn.Linear(20, 64), nn.ReLU()))
            self.kind, self.sign = nn.Linear(64, 10), nn.Linear(64, 2)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            seen = self.net(batch[0])
            kind = F.cross_entropy(self.kind(seen), batch[1])
            sign = F.cross_entropy(self.sign(seen), (batch[0][:, 0] > 0).long())
            self.log_dict({"kind": kind, "sign": sign})
            return kind + sign if fixed else kind

    return Tasks(), loader(*blobs()), {}
