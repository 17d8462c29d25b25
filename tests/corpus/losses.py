"""Wrong losses, wrong heads, wrong first values."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, fault
from .healthy_terms import chosen
from .parts import Language, SequenceEncoder, cnn, images, line, text, tones


@fault("WD102")
def softmax_layer_on_a_cnn(fixed: bool) -> Run:
    return Classifier(cnn() if fixed else nn.Sequential(cnn(), nn.Softmax(1))), loader(*images()), {}


@fault("WD102")
def softmax_inside_the_step(fixed: bool) -> Run:
    class Probabilities(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores = self.net(batch["signal"])
            scores = scores if fixed else torch.softmax(scores, -1)
            return {"loss": self.loss(scores, batch["kind"]), "scores": scores.detach()}

    x, y = tones()
    rows = [{"signal": a, "kind": b} for a, b in zip(x, y, strict=True)]
    return Probabilities(SequenceEncoder(), lr=3e-3), torch.utils.data.DataLoader(rows, 32, shuffle=True), {}


@fault("WD102")
def sigmoid_before_bce_with_logits(fixed: bool) -> Run:
    x = torch.randn(512, 20)
    y = (x @ torch.randn(20, 6) > 2).float()
    net = mlp(k=6) if fixed else nn.Sequential(mlp(k=6), nn.Sigmoid())
    return Classifier(net, F.binary_cross_entropy_with_logits), loader(x, y), {}


def focal(scores: Tensor, labels: Tensor) -> Tensor:
    logs = F.log_softmax(scores, 1).gather(1, labels[:, None])
    return (-((1 - logs.exp()) ** 2) * logs).mean()


@fault("WD102")
def softmax_before_a_focal_loss_by_hand(fixed: bool) -> Run:
    return Classifier(mlp() if fixed else nn.Sequential(mlp(), nn.Softmax(1)), focal), loader(*blobs()), {}


@fault("WD102")
def sigmoid_made_of_a_tanh(fixed: bool) -> Run:
    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        scores = scores if fixed else 0.5 * (torch.tanh(scores / 2) + 1)
        return F.binary_cross_entropy_with_logits(scores, F.one_hot(labels, 10).float())

    return Classifier(mlp(), loss), loader(*blobs()), {}


@fault("WD102")
def sigmoid_before_a_soft_margin(fixed: bool) -> Run:
    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(scores if fixed else scores.sigmoid(), F.one_hot(labels, 10).float())

    return Classifier(mlp(), loss), loader(*blobs()), {}


@fault("WD102")
def probabilities_divided_by_a_temperature(fixed: bool) -> Run:
    wanted = (3 * torch.randn(10, 10)).softmax(1)

    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        scores = scores if fixed else scores.softmax(1)
        return F.kl_div(F.log_softmax(scores / 4, 1), wanted[labels], reduction="batchmean") * 16

    return Classifier(mlp(), loss), loader(*blobs()), {}


@fault("WD102")
def binary_loss_by_hand_on_probabilities(fixed: bool) -> Run:
    def loss(scores: Tensor, labels: Tensor) -> Tensor:
        z = scores.squeeze(1) if fixed else scores.squeeze(1).sigmoid()
        return (F.softplus(z) - (labels > 0) * z).mean()

    return Classifier(mlp(k=1), loss), loader(*blobs(k=2)), {}


@fault("WD102")
def softmax_in_manual_optimisation() -> Run:
    return Manual(nn.Sequential(mlp(k=3), nn.Softmax(-1))), loader(*blobs(k=3)), {}


@fault("WD102")
def two_class_softmax_with_weights() -> Run:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.3, 1.7]), label_smoothing=0.05)
    return Classifier(nn.Sequential(mlp(k=2), nn.Softmax(1)), loss), loader(*blobs(k=2)), {}


@fault("WD102")
def softmax_per_pixel() -> Run:
    x, _ = images(160)
    y = (x.mean(1) > 0).long()
    return Classifier(nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Softmax2d()), lr=1e-2), loader(x, y), {}


@fault("WD109")
def losses_joined_by_a_new_tensor(fixed: bool) -> Run:
    class Parts(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            scores, labels = self.net(batch[0]), batch[1]
            losses = [F.cross_entropy(s, y) for s, y in zip(scores.chunk(2), labels.chunk(2), strict=True)]
            return torch.stack(losses).mean() if fixed else torch.tensor(losses, requires_grad=True).mean()

    return Parts(lr=3e-3), loader(*blobs()), {}


@fault("WD103", also=("WD144",))
def nll_loss_of_scores(fixed: bool) -> Run:
    net = nn.Sequential(mlp(), nn.LogSoftmax(1)) if fixed else mlp()
    return Classifier(net, F.nll_loss, lr=3e-3), loader(*blobs()), {}


@fault("WD103")
def nll_loss_of_probabilities() -> Run:
    return Classifier(nn.Sequential(mlp(k=7), nn.Softmax(1)), nn.NLLLoss(), lr=3e-3), loader(*blobs(k=7)), {}


@fault("WD103")
def softmax_over_the_batch(fixed: bool) -> Run:
    net = nn.Sequential(mlp(), nn.LogSoftmax(1 if fixed else 0))
    return Classifier(net, F.nll_loss, lr=3e-3), loader(*blobs()), {}


@fault("WD103")
def kl_divergence_of_probabilities(fixed: bool) -> Run:
    def loss(scores: Tensor, y: Tensor) -> Tensor:
        share = scores.log_softmax(1) if fixed else scores.softmax(1)
        return F.kl_div(share, F.one_hot(y, 10) * 0.9 + 0.01, reduction="batchmean")

    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD103", raises="RuntimeError")
def bce_of_scores() -> Run:
    x, y = blobs(k=2)
    return Classifier(nn.Sequential(mlp(k=1), nn.Flatten(0)), F.binary_cross_entropy), loader(x, y.float()), {}


@fault("WD103", also=("WD214",))
def cross_entropy_of_one_output() -> Run:
    x, y = blobs(k=2)
    return Classifier(mlp(k=1), lambda z, t: F.cross_entropy(z, 0 * t)), loader(x, y), {}


@fault("WD104")
def column_against_row(fixed: bool) -> Run:
    x, y = line()
    return Classifier(mlp(12, 1), F.mse_loss, lr=3e-3), loader(x, y[:, None] if fixed else y), {}


@fault("WD104")
def column_against_row_by_hand(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return (z - (y[:, None] if fixed else y)).abs().mean()

    return Classifier(mlp(12, 1), loss, lr=3e-3), loader(*line()), {}


@fault("WD104")
def huber_of_values_in_a_dict() -> Run:
    class Values(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return F.smooth_l1_loss(self.net(batch["x"]), batch["y"])

    rows = [{"x": a, "y": b} for a, b in zip(*line(256), strict=True)]
    return Values(mlp(12, 1)), torch.utils.data.DataLoader(rows, 16), {}


@fault("WD107", also=("WD214",))
def relu_on_scores(fixed: bool) -> Run:
    return Classifier(mlp() if fixed else nn.Sequential(mlp(), nn.ReLU())), loader(*blobs()), {}


@fault("WD107")
def absolute_error_by_hand_after_a_tanh(fixed: bool) -> Run:
    def error(prediction: Tensor, target: Tensor) -> Tensor:
        return (target - prediction.squeeze(-1)).abs().mean()

    x, y = line()
    last = nn.Identity() if fixed else nn.Tanh()
    return Classifier(nn.Sequential(mlp(12, 1), last), error, lr=3e-3), loader(x, 3 * y), {}


@fault("WD107")
def tanh_on_a_wide_target(fixed: bool) -> Run:
    x, y = line()
    net = nn.Sequential(mlp(12, 1), nn.Identity() if fixed else nn.Tanh(), nn.Flatten(0))
    return Classifier(net, F.mse_loss, lr=3e-3), loader(x, 3 * y), {}


@fault("WD107", also=("WD214", "WD217", "WD316"))
def relu_output_that_never_fires() -> Run:
    x, y = line()
    net = mlp(12, 1)
    nn.init.constant_(net[2].bias, -6.0)
    return Classifier(nn.Sequential(net, nn.ReLU(), nn.Flatten(0)), F.mse_loss), loader(x, 4 + y), {}


@fault("WD101", also=("WD213", "WD214", "WD317", "WD144", "WD143", "WD142"))
def sum_over_all_pixels(fixed: bool) -> Run:
    x, _ = images(160)
    y = (1.5 * x.mean(1) + 2).round().clamp(0, 4).long()
    net = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 5, 3, padding=1))
    loss = nn.CrossEntropyLoss(reduction="mean" if fixed else "sum")
    return Classifier(net, loss, SGD, lr=0.1 if fixed else 0.01), loader(x, y, batch_size=16), {}


@fault("WD101")
def bias_of_another_task(fixed: bool) -> Run:
    net = cnn()
    if not fixed:
        nn.init.constant_(net[-1].bias[:1], 14.0)
    return Classifier(net), loader(*images()), {}


@fault("WD101", also=("WD213",))
def unit_normal_weights() -> Run:
    net = mlp(width=256)
    for layer in (net[0], net[2]):
        nn.init.normal_(layer.weight)
    return Classifier(net), loader(*blobs()), {}


@fault("WD101")
def unit_normal_vocabulary(fixed: bool) -> Run:
    class Bigram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.norm, self.head = nn.Embedding(300, 64), nn.LayerNorm(64), nn.Linear(64, 300)
            nn.init.normal_(self.head.weight, std=0.02 if fixed else 1.0)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.norm(self.token(ids)))

    return Language(Bigram()), loader(text(v=300)), {}


@fault("WD101")
def contrastive_without_normalising(fixed: bool) -> Run:
    class Pairs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (self.net(batch[0] + 0.5 * torch.randn_like(batch[0])) for _ in range(2))
            if fixed:
                a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
            return F.cross_entropy(a @ b.T / (0.2 if fixed else 0.02), torch.arange(len(a)))

    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 48), nn.BatchNorm1d(48))
    return Pairs(net), loader(torch.randn(512, 20)), {}


@fault("WD109", raises="RuntimeError")
def loss_of_the_winning_class() -> Run:
    loss = lambda z, y: F.mse_loss(z.argmax(1).float(), y.float())  # noqa: E731
    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD109", raises="RuntimeError")
def network_inside_no_grad() -> Run:
    class Unaware(Classifier):
        @torch.no_grad()
        def scores(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(self.scores(batch[0]), batch[1])

    return Unaware(), loader(*blobs()), {}


@fault("WD109", raises="RuntimeError")
def loss_rebuilt_from_a_number() -> Run:
    class Rebuilt(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return torch.tensor(super().training_step(batch, batch_idx).item())

    return Rebuilt(), loader(*blobs()), {}


@fault("WD108", "WD144", also=("WD317",))
def sign_of_the_loss_flipped() -> Run:
    return Classifier(loss=lambda z, y: -F.cross_entropy(z, y), lr=1e-2), loader(*blobs()), {}


@fault("WD105", also=("WD108", "WD101", "WD144"))
def mask_of_zeros_and_255(fixed: bool) -> Run:
    x, _ = images(160)
    y = (x.mean(1, keepdim=True) > 0).float() * (1 if fixed else 255)
    net = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1))
    return Classifier(net, F.binary_cross_entropy_with_logits, lr=3e-3), loader(x, y), {}


@fault("WD101", also=("WD317", "WD143", "WD144", "WD213", "WD214"))
def loss_summed_over_the_batch_in_manual_mode() -> Run:
    loss = lambda z, y: F.cross_entropy(z, y, reduction="none").sum()  # noqa: E731
    return Manual(loss=loss, optimizer=SGD, lr=0.1), loader(*blobs(), batch_size=64), {}


class _Views(Classifier):
    """Unit vectors of noisy views."""

    def __init__(self) -> None:
        super().__init__(mlp(k=16))

    def view(self, x: Tensor) -> Tensor:
        return F.normalize(self.net(x + 0.3 * torch.randn_like(x)), dim=1)


@fault("WD103", also=("WD114",))
def each_sample_its_own_positive(fixed: bool) -> Run:
    class Pairs(_Views):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one = self.view(batch[0])
            other = self.view(batch[0]) if fixed else one
            return F.cross_entropy(one @ other.T / 0.2, torch.arange(len(one)))

    return Pairs(), loader(*blobs()), {}


@fault("WD103")
def each_sample_among_its_own_rivals(fixed: bool) -> Run:
    class Pairs(_Views):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            both, n = torch.cat([self.view(batch[0]), self.view(batch[0])]), len(batch[0])
            scores = both @ both.T / 0.2
            if fixed:
                scores.fill_diagonal_(-torch.inf)
            return F.cross_entropy(scores, (torch.arange(2 * n) + n) % (2 * n))

    return Pairs(), loader(*blobs()), {}


@fault("WD101", also=("WD143", "WD213", "WD317"))
def chosen_probability_of_scores_far_too_large(fixed: bool) -> Run:
    return Classifier(mlp(), lambda z, y: chosen(z if fixed else 40 * z, y)), loader(*blobs()), {}


@fault("WD102")
def both_answers_of_a_sigmoid(fixed: bool) -> Run:
    class Both(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            yes = torch.sigmoid(self.net(batch[0]))
            answers, truth = torch.cat([1 - yes, yes], 1), torch.cat([1 - batch[1], batch[1]], 1)
            return (F.binary_cross_entropy if fixed else F.binary_cross_entropy_with_logits)(answers, truth)

    x, y = line()
    return Both(mlp(12, 1), lr=3e-3), loader(x, (y > 0).float()[:, None]), {}


@fault("WD103", also=("WD114",))
def view_beside_itself(fixed: bool) -> Run:
    class Views(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            a, b = (F.normalize(self.net(batch[0] + 0.3 * torch.randn_like(batch[0])), dim=1) for _ in range(2))
            hidden = 1e9 * torch.eye(len(a))
            scores = torch.cat([a @ (b if fixed else a).T, a @ a.T - hidden], 1) / 0.2
            return F.cross_entropy(scores, torch.arange(len(a)))

    return Views(mlp(20, 16), lr=3e-3), loader(*blobs()), {}


@fault("WD102")
def sigmoid_by_hand_before_its_loss(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        scores = z if fixed else 1 / (1 + torch.exp(-z))
        return F.binary_cross_entropy_with_logits(scores, F.one_hot(y, 10).float())

    return Classifier(loss=loss), loader(*blobs()), {}


@fault("WD103")
def scores_clamped_for_an_entropy_by_hand(fixed: bool) -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        target = F.one_hot(y, 10).float()
        p = (z.sigmoid() if fixed else z).clamp(1e-6, 1 - 1e-6)
        return -(target * p.log() + (1 - target) * torch.log(1 - p)).mean()

    return Classifier(loss=loss), loader(*blobs()), {}
