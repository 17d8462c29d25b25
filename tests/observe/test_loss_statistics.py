"""Numbers about loss calls: right, bounded, and no false proof of a softmax."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sanity_watchdog.checks.log_inputs import sums_to_one
from sanity_watchdog.observe import bounded
from sanity_watchdog.observe.bounded import LIMIT, few_rows
from sanity_watchdog.observe.calls import LossCall
from sanity_watchdog.observe.loss_statistics import head_scale, measure, standard_error


def numbers(name: str, scores: Tensor, target: Tensor, **options: Any) -> dict[str, float]:
    value = getattr(F, name)(scores, target, **options)
    call = LossCall(name, "", {"input": scores, "target": target, **options}, value)
    return {key: float(tensor) for key, tensor in measure(call).items()}


@pytest.mark.parametrize("shape", [(64, 5), (8, 5, 6), (4, 5, 3, 4), (1, 5, 40)])
@pytest.mark.parametrize("ignored", [False, True])
def test_the_loss_is_ln_k_plus_spread_plus_fit(shape: tuple[int, ...], ignored: bool) -> None:
    torch.manual_seed(0)
    z, y = torch.randn(shape) * 3, torch.randint(0, 5, (shape[0], *shape[2:]))
    y = torch.where(torch.rand(y.shape) < 0.3, -100, y) if ignored else y
    found = numbers("cross_entropy", z, y)
    loss = F.cross_entropy(z, y).item()
    assert found["seen"] == pytest.approx(loss, rel=1e-5)
    assert found["uniform"] + found["spread"] + found["fit"] == pytest.approx(loss, rel=1e-5)
    assert found["uniform"] == pytest.approx(math.log(5))
    assert found["valid"] == found["targets"] == (y != -100).sum()


@pytest.mark.parametrize("options", [{"weight": torch.rand(5) + 0.1}, {"label_smoothing": 0.2}, {"reduction": "sum"}])
def test_what_is_seen_is_without_weights_smoothing_and_reduction(options: Any) -> None:
    torch.manual_seed(0)
    z, y = torch.randn(64, 5), torch.randint(0, 5, (64,))
    assert numbers("cross_entropy", z, y, **options)["seen"] == pytest.approx(F.cross_entropy(z, y).item(), rel=1e-5)


@pytest.mark.parametrize("hidden", [-1e4, -1e9, -torch.inf])
def test_masked_classes_are_no_classes(hidden: float) -> None:
    torch.manual_seed(0)
    found = numbers(
        "cross_entropy", torch.randn(64, 5).masked_fill(torch.arange(5) > 2, hidden), torch.zeros(64).long()
    )
    assert found["uniform"] == pytest.approx(math.log(3))


def test_large_scores_are_no_masks() -> None:
    torch.manual_seed(0)
    z, y = torch.randn(64, 5) * 3e4, torch.randint(0, 5, (64,))
    found = numbers("cross_entropy", z, y)
    assert found["uniform"] == pytest.approx(math.log(5))
    assert found["seen"] == pytest.approx(F.cross_entropy(z, y).item(), rel=1e-5)


def test_binary_cross_entropy_of_exactly_zero_and_one() -> None:
    p, y = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.3]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    assert numbers("binary_cross_entropy", p, y)["seen"] == pytest.approx(F.binary_cross_entropy(p, y).item())


def test_soft_targets() -> None:
    torch.manual_seed(0)
    z, q = torch.randn(64, 5) * 2, torch.rand(64, 5).softmax(1)
    found = numbers("cross_entropy", z, q)
    assert found["seen"] == pytest.approx(F.cross_entropy(z, q).item(), rel=1e-5)
    assert found["sum_low"] == pytest.approx(1)


def test_binary_and_divergence() -> None:
    torch.manual_seed(0)
    z, q = torch.randn(64, 5) * 2, torch.rand(64, 5).softmax(1)
    plain = F.binary_cross_entropy_with_logits(z, q).item()
    assert numbers("binary_cross_entropy_with_logits", z, q, pos_weight=torch.ones(5) * 7)["seen"] == pytest.approx(
        plain
    )
    assert numbers("binary_cross_entropy", z.sigmoid(), q)["seen"] == pytest.approx(plain, rel=1e-4)
    logs = z.log_softmax(1)
    assert numbers("kl_div", logs, q)["seen"] == pytest.approx(
        F.kl_div(logs, q, reduction="batchmean").item(), rel=1e-4
    )


@pytest.mark.parametrize("limit", [1 << 20, 200])
@pytest.mark.parametrize("together", [1, 2, 3])
def test_log_probabilities_of_several_axes_at_once(together: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr("sanity_watchdog.observe.bounded.LIMIT", limit)
    z = torch.randn(8, 3, 4, 5)
    logs = z.flatten(-together).log_softmax(-1).view_as(z)
    assert numbers("kl_div", logs, logs.exp())["log_error"] < 1e-5
    assert numbers("kl_div", z, logs.exp())["log_error"] > 0.1


def test_log_probabilities_of_a_whole_matrix() -> None:
    logs = torch.randn(8, 8).flatten().log_softmax(0).view(8, 8)
    assert numbers("kl_div", logs, logs.exp())["log_error"] < 1e-5


def test_closed_classes_are_not_counted() -> None:
    torch.manual_seed(0)
    z, y = torch.randn(64, 10), torch.randint(0, 4, (64,))
    for fill in (-1e4, -1e9, float("-inf")):
        z[:, 4:] = fill
        found = numbers("cross_entropy", z, y)
        assert found["uniform"] == pytest.approx(math.log(4))
        assert found["seen"] == pytest.approx(F.cross_entropy(z, y).item(), rel=1e-5)


def test_standard_error_is_that_of_the_mean() -> None:
    torch.manual_seed(0)
    loss = torch.rand(200)
    found = standard_error(loss, torch.ones(200, dtype=torch.bool))
    assert float(found["standard_error"]) == pytest.approx(loss.std().item() / math.sqrt(200), rel=1e-4)
    assert int(found["samples"]) == 200


def test_pixels_of_a_sample_are_one_sample() -> None:
    torch.manual_seed(0)
    own = torch.rand(20, 1)
    apart = standard_error(own.expand(20, 50).reshape(-1), torch.ones(1000, dtype=torch.bool))
    together = standard_error(own.expand(20, 50), torch.ones(20, 50, dtype=torch.bool))
    assert float(together["standard_error"]) == pytest.approx(own.std().item() / math.sqrt(20), rel=1e-4)
    assert float(together["standard_error"]) > 5 * float(apart["standard_error"])


def test_one_target_has_no_standard_error() -> None:
    assert math.isnan(numbers("cross_entropy", torch.randn(1, 5), torch.tensor([2]))["standard_error"])


@pytest.mark.parametrize("shape", [(64, 50_257), (2, 21, 512, 512), (100_000, 100), (3, 7), (1, 5, 4_000_000)])
def test_what_is_looked_at_is_bounded(shape: tuple[int, ...]) -> None:
    part, cut = few_rows(torch.empty(shape, device="meta"), 1)
    assert 0 < part.numel() <= 2 * LIMIT
    assert part.shape[-1] == shape[1]
    assert torch.empty((shape[0], *shape[2:]), device="meta")[cut].shape == part.shape[:-1]


def test_nothing_of_full_size_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT", 2_000)
    z, y = torch.randn(4000, 50), torch.randint(0, 50, (4000,))
    with torch.profiler.profile(profile_memory=True) as profile:
        measure(LossCall("cross_entropy", "", {"input": z, "target": y}, None))
    assert max(event.cpu_memory_usage for event in profile.events()) < z.numel() * 4 / 2


def test_random_generators_are_left_alone() -> None:
    state = torch.get_rng_state()
    numbers("cross_entropy", torch.zeros(8, 5), torch.zeros(8, dtype=torch.long))
    assert torch.equal(torch.get_rng_state(), state)


def test_head_scale_of_torchs_default() -> None:
    torch.manual_seed(0)
    assert float(head_scale(torch.nn.Linear(256, 100).weight)) == pytest.approx(1 / math.sqrt(3), rel=0.02)
    assert float(head_scale(torch.nn.Conv2d(64, 100, 3).weight)) == pytest.approx(1 / math.sqrt(3), rel=0.02)


def proofs(z: Tensor, dtype: torch.dtype) -> int:
    """How many of the batches ``(trials, rows, k)`` pass for probabilities."""
    x = z.to(dtype).float()
    error = (x.sum(-1) - 1).abs().amax(-1)
    low, high = x.amin((1, 2)), x.amax((1, 2))
    name = str(dtype).removeprefix("torch.")
    close = (error < 0.02).nonzero().flatten().tolist()
    return sum(sums_to_one(error[i].item(), low[i].item(), high[i].item(), *z.shape[1:], name) for i in close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "k"), [(1, 2), (2, 2), (3, 2), (4, 2), (8, 2), (1, 10), (2, 10), (4, 10), (1, 1000)])
def test_random_logits_are_no_probabilities(rows: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(rows * k)
    trials = 20_000 if k < 100 else 1_000
    for mean, scale in ((0.5, 0.3), (1 / k, 0.1), (1 / k, 0.02), (0.0, 1.0)):
        assert proofs(torch.randn(trials, rows, k) * scale + mean, dtype) <= trials * 1e-3 * (rows == 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [2, 10, 1000, 50_000])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_every_softmax_is_one(k: int, dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(k)
    z = (torch.randn(4, 8, k) * scale).softmax(-1)
    assert proofs(z, dtype) == 4
