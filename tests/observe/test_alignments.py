"""Numbers about calls of ``ctc_loss``."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.observe.alignments import measure
from sanity_watchdog.observe.calls import LossCall

NAMES = ("log_probs", "targets", "input_lengths", "target_lengths")


def numbers(*arguments: Any, **options: Any) -> dict[str, float]:
    call = LossCall("ctc_loss", "", {**dict(zip(NAMES, arguments, strict=True)), **options})
    return {key: float(tensor) for key, tensor in measure(call).items()}


def some(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    log_p = torch.randn(9, 16, 5).log_softmax(-1)
    return log_p, torch.randint(1, 5, (16, 6)), torch.randint(1, 10, (16,)), torch.randint(0, 7, (16,))


@pytest.mark.parametrize("seed", range(5))
def test_targets_are_too_long_where_the_loss_is_infinite(seed: int) -> None:
    given = some(seed)
    infinite = F.ctc_loss(*given, reduction="none").isinf().sum()
    assert infinite
    assert numbers(*given)["too_long"] == infinite


@pytest.mark.parametrize("seed", range(3))
def test_joined_targets_and_lengths_as_tuples_tell_the_same(seed: int) -> None:
    log_p, y, frames, sizes = some(seed)
    joined = torch.cat([word[:size] for word, size in zip(y, sizes.tolist(), strict=True)])
    found = numbers(log_p, joined.int(), tuple(frames.tolist()), tuple(sizes.tolist()))
    assert found.pop("token") is not None
    padded = numbers(log_p, y, frames, sizes)
    assert found == {key: padded[key] for key in found}


def test_only_steps_within_the_lengths_count() -> None:
    log_p, y, frames, sizes = some(0)
    late = torch.arange(9)[:, None] >= frames
    assert numbers(log_p.masked_fill(late[..., None], 3.0), y, frames, sizes)["log_error"] < 1e-5
    assert numbers(log_p.masked_fill(~late[..., None], 3.0), y, frames, sizes)["log_error"] > 3


def test_blanks_that_end_a_target_are_told_apart() -> None:
    log_p = torch.randn(9, 2, 5).log_softmax(-1)
    found = numbers(log_p, torch.tensor([[0, 1, 2, 0], [3, 0, 0, 0]]), torch.tensor([9, 9]), torch.tensor([4, 4]))
    assert (found["blanks"], found["ending"], found["valid"]) == (5, 4, 8)
    assert (found["label_low"], found["label_high"]) == (0, 3)


def test_one_sample_and_shapes_that_do_not_fit() -> None:
    log_p, y, _, _ = some(0)
    alone = numbers(log_p[:, 0], y[0], torch.tensor(9), torch.tensor(6))
    assert (alone["valid"], alone["rows"]) == (6, 9)
    assert numbers(log_p, y, torch.tensor([9] * 9), torch.tensor([6] * 9)) == {"longest": 9}
