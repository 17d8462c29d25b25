"""Meta-learning puts gradients where they belong by hand: nothing piles up."""

from typing import Any

import torch
import torch.nn.functional as F
from torch.func import functional_call

from ..runs import Manual, assert_awake, blobs, codes, loader, watched


class InnerLoop(Manual):
    """One step of first-order meta-learning."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        optimizer = self.optimizers()
        held = dict(self.net.named_parameters())
        inner = F.cross_entropy(functional_call(self.net, held, (x[:16],)), y[:16])
        steps = torch.autograd.grad(inner, list(held.values()))
        fast = {name: p - 0.1 * g for (name, p), g in zip(held.items(), steps, strict=True)}
        outer = F.cross_entropy(functional_call(self.net, fast, (x[16:],)), y[16:])
        gradients = torch.autograd.grad(outer, list(held.values()), retain_graph=True)
        self.manual_backward(outer)
        for p, g in zip(held.values(), gradients, strict=True):
            p.grad = g
        optimizer.step()


def test_replaced_gradients_do_not_pile_up() -> None:
    torch.manual_seed(0)
    dog = watched(InnerLoop(optimizer=torch.optim.SGD, lr=0.05), loader(*blobs(256)), max_steps=16)
    assert_awake(dog)
    assert "WD216" not in codes(dog)


class Forgotten(InnerLoop):
    """The same without putting them there: each step adds to the last one's."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.manual_backward(F.cross_entropy(self.net(x), y))
        self.optimizers().step()


def test_gradients_that_nobody_clears_still_do() -> None:
    torch.manual_seed(0)
    dog = watched(Forgotten(optimizer=torch.optim.SGD, lr=0.05), loader(*blobs(256)), max_steps=16)
    assert "WD216" in codes(dog)
