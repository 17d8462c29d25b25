"""Healthy runs whose losses are put together in ways of their own."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal
from torch.optim import SGD

from tests.runs import Classifier, Manual, blobs, loader, mlp

from .case import Run, healthy
from .parts import line


def chosen(z: Tensor, y: Tensor) -> Tensor:
    """Cross entropy, as the binary one of the label's probability."""
    return F.binary_cross_entropy(z.softmax(1).gather(1, y[:, None]), torch.ones(len(y), 1))


@healthy
def probability_of_the_label_against_one() -> Run:
    return Classifier(mlp(k=100), chosen), loader(*blobs(512, k=100)), {}


@healthy
def one_instance_of_many() -> Run:
    class OneOfMany(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(k=1)

        def forward(self, x: Tensor) -> Tensor:
            return 1 - (1 - self.net(x).squeeze(2).sigmoid()).prod(1)

    x = torch.randn(320, 12, 20)
    return Classifier(OneOfMany(), F.binary_cross_entropy, lr=3e-3), loader(x, (x[..., 0].amax(1) > 1.5).float()), {}


@healthy
def classes_summed_to_an_event() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy(z.softmax(1)[:, :2].sum(1), (y < 2).float())

    return Classifier(mlp(k=100), loss, lr=3e-3), loader(*blobs(512, k=3)), {}


@healthy
def divergence_switched_on_after_some_steps() -> Run:
    class Vae(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(20, 16, 64), lr=1e-3)
            self.decoder = mlp(8, 20, 64)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x = batch[0]
            mean, spread = self.net(x).chunk(2, 1)
            error = (self.decoder(mean + torch.randn_like(mean) * (spread / 2).exp()) - x).square().mean()
            divergence = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(1).mean()
            return error + 20 * divergence * (self.global_step >= 30)

    return Vae(), loader(blobs(640)[0]), {"max_steps": 60}


@healthy
def second_objective_from_the_third_epoch() -> Run:
    class Pairs(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            made = self.net(batch[0])
            loss = F.l1_loss(made, batch[1])
            if self.current_epoch >= 2:
                loss = loss + 30 * (made.std(1) - batch[1].std(1)).abs().mean()
            return loss

    x = torch.randn(512, 20)
    return Pairs(nn.Linear(20, 20)), loader(x, x.flip(1)), {"max_steps": 60}


@healthy
def half_of_a_squared_error_accumulated_over_two() -> Run:
    net = nn.Sequential(mlp(12, 1), nn.Flatten(0))
    halved = Classifier(net, lambda z, y: 0.5 * F.mse_loss(z, y), SGD, lr=0.05)
    return halved, loader(*line()), {"accumulate_grad_batches": 2}


@healthy
def mean_over_heads_accumulated_over_as_many() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return sum(F.cross_entropy(part, y) for part in z.chunk(4, 1)) / 4

    return Classifier(mlp(k=40), loss, SGD, lr=0.2), loader(*blobs(512)), {"accumulate_grad_batches": 4}


@healthy
def weights_that_add_up_to_the_accumulation() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return (F.cross_entropy(z, y) + 3 * z.square().mean()) / 4

    return Classifier(loss=loss, optimizer=SGD, lr=0.2), loader(*blobs(512)), {"accumulate_grad_batches": 4}


@healthy
def accumulation_that_shrinks() -> Run:
    settings = {"callbacks": [GradientAccumulationScheduler({0: 64, 4: 1})], "max_epochs": 12, "max_steps": -1}
    return Classifier(optimizer=SGD, lr=0.1), loader(*blobs(512), batch_size=8), settings


@healthy
def divided_by_hand_in_manual_optimisation() -> Run:
    class Accumulates(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            self.manual_backward(self.loss(self.net(batch[0]), batch[1]) / 4)
            if batch_idx % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

    return Accumulates(optimizer=SGD, lr=0.2), loader(*blobs(512)), {}


@healthy
def weighted_losses_accumulated() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return 0.3 * F.cross_entropy(z, y) + 0.2 * F.multi_margin_loss(z, y)

    return Classifier(loss=loss, optimizer=SGD, lr=0.2), loader(*blobs(512)), {"accumulate_grad_batches": 2}


@healthy
def sum_over_the_batch_divided_by_its_size() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y, reduction="sum") / len(y)

    data = loader(*blobs(256), batch_size=8)
    return Classifier(loss=loss, optimizer=SGD, lr=0.2), data, {"accumulate_grad_batches": 8}


@healthy
def halves_of_two_pairs_accumulated_over_two() -> Run:
    class Three(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            one, *others = (F.normalize(self.net(batch[0] + 0.1 * torch.randn_like(batch[0]))) for _ in range(3))
            places, loss = torch.arange(len(one)), torch.zeros(())
            for other in others:
                scores = one @ other.T / 0.2
                loss = loss + (F.cross_entropy(scores, places) + F.cross_entropy(scores.T, places)) / 2
            return loss

    return Three(mlp(k=16), optimizer=SGD, lr=0.05), loader(blobs(512)[0]), {"accumulate_grad_batches": 2}


class Parts(Manual):
    """Several backward passes before each step; a decoder beside the network."""

    def __init__(self, net: nn.Module, decoder: nn.Module | None = None) -> None:
        super().__init__(net)
        self.decoder = decoder

    def losses(self, x: Tensor, y: Tensor) -> Iterator[Tensor]:
        """Each is gone back through before the next one is made."""
        raise NotImplementedError

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        for loss in self.losses(*batch):
            self.manual_backward(loss)
        optimizer.step()


@healthy
def agreement_and_reconstruction_one_after_the_other() -> Run:
    class Both(Parts):
        def losses(self, x: Tensor, y: Tensor) -> Iterator[Tensor]:
            one, other = (self.net(x + 0.1 * torch.randn_like(x)) for _ in range(2))
            yield 1 - F.cosine_similarity(one, other).mean()
            yield F.mse_loss(self.decoder(self.net(x)), x)

    return Both(mlp(k=8), mlp(8, 20)), loader(*blobs()), {}


@healthy
def inputs_made_worse_by_a_backward_pass_of_their_own() -> Run:
    class Attacked(Parts):
        def losses(self, x: Tensor, y: Tensor) -> Iterator[Tensor]:
            shift = torch.zeros_like(x, requires_grad=True)
            yield -F.cross_entropy(self.net(x + shift), y)
            self.optimizers().zero_grad()
            yield F.cross_entropy(self.net(x - 0.1 * shift.grad.sign()), y)

    return Attacked(mlp()), loader(*blobs()), {}


@healthy
def maps_that_stay_orthogonal() -> Run:
    class Maps(Classifier):
        def __init__(self) -> None:
            super().__init__(orthogonal(nn.Linear(20, 20, bias=False)))
            self.other = orthogonal(nn.Linear(20, 20, bias=False))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return 1 - F.cosine_similarity(self.net(batch[0]), self.other(batch[1])).mean()

    x = blobs()[0]
    return Maps(), loader(x, x.flip(1)), {}


@healthy
def four_heads_divided_by_their_number_one_by_one() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return sum(F.cross_entropy(z[:, :10] + z[:, 10 * i : 10 * i + 10], y) / 4 for i in range(4))

    settings = {"accumulate_grad_batches": 4}
    return Classifier(mlp(k=40), loss, SGD, lr=0.1), loader(*blobs(512)), settings


@healthy
def one_term_of_two_divided_by_a_number_of_its_own() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(z, y) + F.mse_loss(z.softmax(1), F.one_hot(y, 10).float(), reduction="sum") / 4 / 32

    return Classifier(loss=loss, optimizer=SGD, lr=0.1), loader(*blobs(512)), {"accumulate_grad_batches": 4}


def with_gaps() -> tuple[Tensor, Tensor]:
    """Four answers of each sample, 0 or 1, of which about 30 % are unknown: -1."""
    x, y = line()
    y = (y[:, None] > torch.tensor([-0.5, 0.0, 0.2, 0.6])).float()
    y[torch.rand(y.shape) < 0.3] = -1
    return x, y


@healthy
def unknown_answers_left_out_by_a_mask() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(z, y, reduction="none")
        return (each * (y >= 0)).sum() / (y >= 0).sum()

    return Classifier(mlp(12, 4), loss, lr=3e-3), loader(*with_gaps()), {}


@healthy
def unknown_answers_left_out_by_weights() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        known = (y >= 0).float()
        return F.binary_cross_entropy_with_logits(z, y, known, reduction="sum") / known.sum()

    return Classifier(mlp(12, 4), loss, lr=3e-3), loader(*with_gaps()), {}


@healthy
def unknown_values_left_out_by_an_index() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(z.sigmoid(), y, reduction="none")[y >= 0].mean()

    return Classifier(mlp(12, 4), loss, lr=3e-3), loader(*with_gaps()), {}


@healthy
def squared_errors_left_out_by_a_mask() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return ((z.sigmoid() - y) ** 2 * (y >= 0)).sum() / (y >= 0).sum()

    return Classifier(mlp(12, 4), loss, lr=3e-3), loader(*with_gaps()), {}


@healthy
def labels_that_are_to_be_made_unlikely() -> Run:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        unlikely = torch.log1p(-z.softmax(1).clamp(max=1 - 1e-6))
        return F.cross_entropy(z, y) + 0.2 * F.nll_loss(unlikely, (y + 1) % z.shape[1])

    return Classifier(loss=loss), loader(*blobs()), {}
