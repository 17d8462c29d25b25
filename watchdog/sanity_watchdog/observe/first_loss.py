"""The first training loss, while its graph is whole and no weight has changed."""

from typing import Any

import torch
from torch import Tensor

from .moment import Moment
from .observer import Observer, in_samples, loss_of


class FirstLossObserver(Observer):
    """Looks once, where the device may be read and the graph walked; Torch's function modes are off."""

    looked = False

    def first_loss(self, at: Moment, loss: Tensor) -> None:
        """The loss as ``training_step`` returned it, or as manual optimisation gave it to the backward pass."""
        raise NotImplementedError

    def output(self, at: Moment, output: Any) -> None:
        loss = loss_of(output)
        if at.run.automatic and loss is not None:
            self._look_once(at, loss)

    @in_samples
    def before_backward(self, at: Moment, loss: Tensor) -> None:
        if not at.run.automatic:  # inside the step; when it returns the graph is gone
            self._look_once(at, loss)

    def _look_once(self, at: Moment, loss: Tensor) -> None:
        if not self.looked and at.sync and at.stage == "train":
            self.looked = True
            with torch._C.DisableTorchFunction():
                self.first_loss(at, loss)
