"""Number formats, loss scaling, and arithmetic that leaves the finite numbers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW

from tests.runs import Classifier, Manual, blobs, fp16, loader, mlp

from .case import Run, fault
from .parts import SequenceEncoder, cnn, cut, deep, images, line, text, tones

LOST = ("WD142", "WD211", "WD303")
"""What follows once a value is not finite."""


@fault("WD201", "WD207", also=("WD217", "WD316"))
def small_loss_in_pure_fp16() -> Run:
    x, y = line()
    net = nn.Sequential(deep(3, nn.Tanh, 12, 1, 128), nn.Flatten(0))
    loss = lambda z, t: 2e-5 * F.mse_loss(z, t)  # noqa: E731
    return Classifier(net, loss, SGD, lr=1e-2), loader(x, y, batch_size=64), {"precision": "16-true"}


@fault("WD506", also=("WD203", "WD141"))
def scaler_made_anew_for_each_step(fixed: bool) -> Run:
    class Anew(Manual):
        def __init__(self) -> None:
            super().__init__(lr=3e-3)
            self.scaler = torch.amp.GradScaler("cpu")

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            if not fixed:
                self.scaler = torch.amp.GradScaler("cpu")
            optimizer = self.optimizers()
            with torch.autocast("cpu", torch.float16):
                scores = self.net(x)
            optimizer.zero_grad()
            self.scaler.scale(10 * F.cross_entropy(scores, y, reduction="sum")).backward()
            self.scaler.step(optimizer)
            self.scaler.update()

    return Anew(), loader(*blobs(640)), {"max_epochs": 4, "max_steps": -1}


@fault("WD201", "WD207", also=("WD217",))
def autocast_without_a_scaler(fixed: bool) -> Run:
    loss = lambda z, t: 1e-6 * F.cross_entropy(z, t)  # noqa: E731
    return Classifier(cnn(), loss), loader(*images()), {"plugins": [fp16(enabled=fixed)]}


@fault("WD203", "WD202")
def scale_that_grows_every_step(fixed: bool) -> Run:
    plugin = fp16(2.0**16, growth_interval=2000) if fixed else fp16(2.0**17, growth_interval=1)
    return Classifier(cnn(), optimizer=SGD, lr=0.05), loader(*images()), {"plugins": [plugin]}


@fault("WD203", "WD202", also=("WD211", "WD316", "WD141"))
def scale_that_collapses() -> Run:
    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 24, bias=False), nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.normalize(self.inlet(x).float(), eps=1e-12))

    x, y = blobs(640)
    x[::24] = 0
    return Classifier(Unit()), loader(x, y, shuffle=False), {"plugins": [fp16()]}


@fault("WD202", "WD142", "WD203", also=("WD101", "WD211"))
def activations_beyond_65504() -> Run:
    class Hot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 64), nn.Linear(64, 10)
            nn.init.normal_(self.inlet.weight, std=30)

        def forward(self, x: Tensor) -> Tensor:
            h = self.inlet(x)
            return self.head(h * h * 10 / 1e5)

    return Classifier(Hot(), optimizer=SGD, lr=1e-3), loader(*blobs()), {"plugins": [fp16(2.0**8)]}


@fault("WD202", "WD205", *LOST)
def epsilon_below_fp16() -> Run:
    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inlet, self.head = nn.Linear(20, 24, bias=False), nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.inlet(x))
            length = h.square().mean(1, keepdim=True).sqrt()
            return self.head(h / (length + torch.full_like(length, 1e-9)))

    x, y = blobs()
    x[::40] = 0
    return Classifier(Cosine(), optimizer=SGD, lr=1e-2), loader(x, y), {"precision": "16-true"}


@fault("WD205", also=(*LOST, "WD201", "WD207"))
def adam_epsilon_in_fp16_weights() -> Run:
    return Classifier(), loader(*blobs()), {"precision": "16-true", "max_steps": 12}


@fault("WD204", "WD316")
def updates_lost_in_bf16(fixed: bool) -> Run:
    lr = 3e-3 if fixed else 2e-6
    module = Classifier(SequenceEncoder(), optimizer=AdamW, lr=lr, weight_decay=0.0)
    return module, loader(*tones()), {"precision": "bf16-mixed" if fixed else "bf16-true"}


@fault("WD206", "WD217", first=("WD206",), also=("WD316", "WD141"))
def clipped_while_scaled(fixed: bool) -> Run:
    class Clips(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.net(batch[0]), batch[1]))
            if not fixed:
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            optimizer.step()

    return Clips(optimizer=SGD, lr=0.1), loader(*blobs(640)), {"plugins": [fp16(2.0**12)]}


@fault("WD142", *LOST, also=("WD317", "WD144", "WD143", "WD213"))
def logarithm_of_a_rounded_softmax(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        logs = z.log_softmax(1) if fixed else z.softmax(1).log()
        return -(F.one_hot(y, 10) * logs).sum(1).mean()

    x, y = blobs(640)
    return Classifier(mlp(width=96), loss, lr=3e-3 if fixed else 0.3), loader(x if fixed else 6 * x, y), {}


@fault("WD211", also=("WD142", "WD303", "WD122"))
def root_of_zero_has_no_slope(fixed: bool) -> Run:
    class Lengths(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch[0])
            gap = scores[:1] - scores[:1]
            return self.loss(scores, batch[1]) + (gap.square().sum() + (1e-8 if fixed else 0)).sqrt()

    return Lengths(), loader(*blobs()), {}


@fault(*LOST, also=("WD101", "WD143"))
def division_by_an_empty_class() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        plain = F.cross_entropy(z, y, reduction="none")
        rare = y == 9
        return plain.mean() + (plain * rare).sum() / rare.sum()

    x, y = blobs(640)
    y[y == 9] = 8
    y[300:304] = 9
    return Classifier(loss=loss), loader(x, y, batch_size=16, shuffle=False), {}


@fault("WD401")
def fp16_asked_for_on_a_cpu() -> Run:
    return Classifier(), loader(*blobs()), {"precision": "16-mixed"}


@fault("WD142", also=("WD211", "WD303"))
def attention_over_empty_sequences(fixed: bool) -> Run:
    class Attends(Classifier):
        def __init__(self) -> None:
            super().__init__(nn.Linear(8, 4))
            self.ask, self.answer = nn.Linear(8, 8), nn.Linear(8, 8)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, length, y = batch
            empty = torch.arange(x.shape[1]) >= length[:, None].clamp(min=int(fixed))
            match = self.ask(x) @ self.answer(x).transpose(1, 2)
            seen = match.masked_fill(empty[:, None], -torch.inf).softmax(-1) @ x
            return self.loss(self.net(seen.mean(1)), y)

    x, y = tones()
    length = torch.randint(1, 20, (len(x),))
    length[::40] = 0
    return Attends(), loader(x, length, y), {}


@fault("WD142", also=("WD211", "WD303"))
def rates_that_go_negative(fixed: bool) -> Run:
    x, y = line()
    net = nn.Sequential(mlp(12, 1), nn.Softplus() if fixed else nn.Identity(), nn.Flatten(0))
    return Classifier(net, nn.PoissonNLLLoss(log_input=False), lr=3e-3), loader(x, torch.poisson((y / 2).exp())), {}


@fault("WD142", also=("WD101", "WD211", "WD303"))
def weights_of_other_classes() -> Run:
    x, y = blobs(k=10)
    weight = torch.tensor([0.0] * 5 + [2.0] * 5)
    return Classifier(loss=nn.CrossEntropyLoss(weight)), loader(x, y % 5), {}


@fault("WD142", also=("WD211", "WD303", "WD213", "WD144", "WD317"))
def log_variance_that_overflows(fixed: bool) -> Run:
    class Encoder(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(4, 12))
            self.encode = nn.Linear(12, 8)
            if not fixed:
                nn.init.normal_(self.encode.weight, std=40.0)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            mean, log_var = self.encode(batch[0]).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
            gap = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
            return F.mse_loss(self.net(z), batch[0]) + 0.01 * gap

    return Encoder(), loader(line()[0]), {}


@fault("WD211", "WD133", also=("WD142", "WD303"))
def padding_mask_with_its_meaning_turned(fixed: bool) -> Run:
    """True means real to the tokenizer, and hidden to the layer: rows without padding hide all their keys."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.head = nn.Embedding(48, 16, padding_idx=0), nn.Linear(16, 4)
            self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            h, real = self.tokens(ids), ids != 0
            h = h + self.attend(h, h, h, key_padding_mask=~real if fixed else real)[0].nan_to_num()
            return self.head((h * real[..., None]).sum(1) / real.sum(1, keepdim=True))

    ids = cut(text(), 12, 20)
    return Classifier(Attending(), lr=3e-3), loader(ids, ids[:, 0] % 4), {}


@fault("WD142", also=("WD101",))
def errors_summed_in_half_precision(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        errors = F.cross_entropy(z, y, reduction="none") * 2_000
        return (errors if fixed else errors.half()).sum().float() / len(y) / 2_000

    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD142", "WD303")
def average_divided_by_nothing(fixed: bool) -> Run:
    class Averages(Classifier):
        def on_train_start(self) -> None:
            self.mean, self.count = [torch.zeros_like(p) for p in self.parameters()], 0

        def on_train_batch_end(self, *_: Any) -> None:
            if self.global_step % 10 == 0:
                share = 1 - 0.5 ** (self.count + fixed)
                self.count += 1
                for mean, p in zip(self.mean, self.parameters(), strict=True):
                    mean.lerp_(p.data, 0.5)
                    p.data.copy_(mean / share)

    return Averages(), loader(*blobs()), {}


@fault("WD142")
def degree_of_nobody_in_a_buffer(fixed: bool) -> Run:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(20, 10)
            edges = (torch.rand(20, 20) < 0.3).float()
            edges[3] = 0
            self.register_buffer("edges", edges / edges.sum(1, keepdim=True).clamp(min=float(fixed)))

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x @ self.edges.T)

    return Classifier(Graph()), loader(*blobs()), {}
