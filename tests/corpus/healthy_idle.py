"""Healthy values without a gradient near a loss."""

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.runs import Classifier, blobs, loader, mlp

from .case import Run, healthy
from .idle import Beside, noisy


@healthy
def codes_whose_table_is_an_average() -> Run:
    class Quantised(Classifier):
        def __init__(self, by_hand: bool = False) -> None:
            super().__init__(mlp(20, 4))
            self.decode = mlp(4, 20)
            self.register_buffer("table", torch.randn(16, 4))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            z = self.net(batch[0])
            chosen = torch.cdist(z.detach(), self.table).argmin(1)
            code = self.table[chosen]
            with torch.no_grad():
                for i in chosen.unique():
                    self.table[i].lerp_(z[chosen == i].mean(0), 0.1)
            straight = z + (code - z).detach()
            pulled = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
            return F.mse_loss(self.decode(straight), batch[0]) + pulled

    return Quantised(), loader(blobs()[0]), {}


@healthy
def loss_above_that_of_an_older_network() -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        with torch.no_grad():
            known = F.cross_entropy(module.older(batch[0]), batch[1])
        return -known

    module = Beside(term)
    module.older = deepcopy(module.net)
    module.configure_optimizers = lambda: torch.optim.Adam(module.net.parameters(), 1e-3)
    return module, loader(*blobs()), {}


@healthy
def rounded_error_with_the_slope_of_a_smooth_one() -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        hard = F.l1_loss(scores.argmax(1).float(), batch[1].float())
        soft = F.l1_loss(scores.softmax(1) @ torch.arange(10.0), batch[1].float())
        return 0.01 * ((hard - soft).detach() + soft)

    return Beside(term), loader(*blobs()), {}


@healthy
def probe_on_features_without_a_gradient() -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Tensor:
        return F.mse_loss(module.probe(scores.detach()).squeeze(1), batch[0][:, 0])

    return Beside(term, probe=nn.Linear(10, 1)), loader(*blobs()), {}


@healthy
def consistency_that_starts_later() -> Run:
    def term(module: Any, batch: Any, scores: Tensor) -> Any:
        begun = module.global_step >= 12
        with torch.set_grad_enabled(begun):
            error = F.mse_loss(module.net(noisy(batch[0])), scores.detach())
        return (0.5 if begun else 0.0) * error

    return Beside(term), loader(*blobs()), {}


@healthy
def distance_to_targets_of_a_slow_copy() -> Run:
    class Slow(Classifier):
        def __init__(self) -> None:
            super().__init__(mlp(k=8), lr=3e-3)
            self.predict, self.slow = mlp(8, 8), deepcopy(self.net)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            with torch.no_grad():
                wanted = self.slow(noisy(batch[0]))
                for old, new in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                    old.lerp_(new, 0.01)
            made = self.predict(self.net(noisy(batch[0])))
            self.log("apart", F.mse_loss(wanted, made.detach()))
            return F.mse_loss(F.normalize(made, dim=1), F.normalize(wanted, dim=1)) + 0.1 * (made - wanted).abs().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam([*self.net.parameters(), *self.predict.parameters()], 3e-3)

    return Slow(), loader(blobs()[0]), {}
