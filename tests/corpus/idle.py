"""Terms of a loss that no gradient flows through."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, Manual, blobs, loader, mlp, step_by_hand

from .case import Run, fault
from .parts import cnn, images

bce = F.binary_cross_entropy_with_logits


class Beside(Classifier):
    """``term(module, batch, scores)`` is added to the cross entropy."""

    def __init__(self, term: Any, net: nn.Module | None = None, **parts: nn.Module) -> None:
        super().__init__(net)
        self.term = term
        for name, part in parts.items():
            setattr(self, name, part)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        scores = self.net(batch[0])
        return self.loss(scores, batch[1]) + self.term(self, batch, scores)


def noisy(x: Tensor) -> Tensor:
    return x + 0.1 * torch.randn_like(x)


@fault("WD109")
def consistency_inside_no_grad(fixed: bool) -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        with torch.set_grad_enabled(fixed):
            return 0.5 * F.mse_loss(module.net(noisy(batch[0])), scores.detach())

    return Beside(term), loader(*blobs()), {}


@fault("WD109")
def divergence_of_two_detached_views(fixed: bool) -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        other = module.net(noisy(batch[0]))
        other = other if fixed else other.detach()
        return F.kl_div(other.log_softmax(1), scores.detach().softmax(1), reduction="batchmean") / 2

    return Beside(term), loader(*blobs()), {}


@fault("WD109", also=("WD314",))
def reconstruction_from_a_list_of_detached_maps(fixed: bool) -> Run:
    class Rebuilds(Manual):
        def __init__(self) -> None:
            super().__init__(cnn())
            self.decode = nn.Conv2d(12, 3, 3, padding=1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            first = self.net[:3](x)
            terms = [F.cross_entropy(self.net[3:](first), y)]
            made = self.decode(first)
            terms.append(0.1 * ((made if fixed else made.data) - x).pow(2).mean())
            step_by_hand(self, torch.stack(terms).sum())

    return Rebuilds(), loader(*images()), {}


@fault("WD109")
def error_of_the_chosen_class_alone() -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        return 0.1 * F.l1_loss(scores.argmax(1).float(), batch[1].float())

    return Beside(term), loader(*blobs()), {}


@fault("WD109")
def generator_that_is_judged_without_a_gradient(fixed: bool) -> Run:
    class Filled(Manual):
        def __init__(self) -> None:
            super().__init__(mlp(20, 20))
            self.judge = mlp(20, 1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            player, judge = self.optimizers()
            x = batch[0]
            made = self.net(noisy(x))
            scores = self.judge(made)
            judged = bce(scores if fixed else scores.detach(), torch.ones(len(x), 1))
            player.zero_grad()
            self.manual_backward(F.mse_loss(made, x) + 0.1 * judged)
            player.step()
            judge.zero_grad()
            real, false = self.judge(x), self.judge(made.detach())
            self.manual_backward(bce(real, torch.ones_like(real)) + bce(false, torch.zeros_like(false)))
            judge.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(part.parameters(), 1e-3) for part in (self.net, self.judge)]

    return Filled(), loader(blobs()[0]), {}


@fault("WD109")
def error_rate_as_a_term(fixed: bool) -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        given = scores.softmax(1) if fixed else F.one_hot(scores.argmax(1), 10)
        return 1 - (given * F.one_hot(batch[1], 10)).sum() / len(scores)

    return Beside(term), loader(*blobs()), {}
