from typing import Any

import pytest
import torch.nn.functional as F

from tests.runs import Classifier, assert_awake, codes, mlp, watched


class Turns(Classifier):
    """Pulls two views together; every ``period``-th batch pushes different samples apart."""

    def __init__(self, period: int) -> None:
        super().__init__(mlp(k=8))
        self.period = period

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        one, other = self.net(batch[0] + 0.1), self.net(batch[0] - 0.1)
        if batch_idx % self.period == self.period - 1:
            return F.cosine_similarity(one, other.roll(1, 0)).mean()
        return 1 - F.cosine_similarity(one, other).mean()


@pytest.mark.parametrize("accumulate", [1, 2], ids=["each", "accumulated"])
@pytest.mark.parametrize(("period", "told"), [(2, False), (3, False), (99, True)])
def test_losses_that_take_turns_may_pull(period: int, told: bool, accumulate: int) -> None:
    dog = watched(Turns(period), accumulate_grad_batches=accumulate)
    assert codes(dog) == (["WD115"] if told else [])
    assert "WD115" in dog.summary.judged
    assert_awake(dog)


def test_what_a_short_run_has_shown_is_told_at_its_end() -> None:
    dog = watched(Turns(99), max_steps=1)
    assert codes(dog) == ["WD115"]
    assert next(a.step for a in dog.alerts if a.code == "WD115") == 0
