"""The underflow estimate against the truth: the same batch in float32."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sanity_watchdog.evidence.half import RUN_SHARE
from sanity_watchdog.observe.tensors import Measuring, Statistics
from sanity_watchdog.observe.underflow import lost_share, lost_shares, passed_through_half

SCALES = tuple(2.0**e for e in (-18, -16, -15, -14, -12, -8, 0, 8, 16))


class Bag(nn.Module):
    """Embeddings, most of which a batch does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden, self.out = nn.Embedding(2000, 16), nn.Linear(16, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(self.table((x[:, :6].abs() * 600).long().clamp(0, 1999)).mean(1))))


def stack(act: type[nn.Module], depth: int, width: int = 64) -> nn.Sequential:
    layers = [m for i in range(depth) for m in (nn.Linear(20 if i == 0 else width, width), act())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


MODELS = {
    "relu": lambda: stack(nn.ReLU, 2),
    "tanh": lambda: stack(nn.Tanh, 3),
    "gelu": lambda: stack(nn.GELU, 3),
    "deep": lambda: stack(nn.ReLU, 6),
    "norm": lambda: nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10)),
    "embedding": Bag,
}


def gradients(net: nn.Module, x: Tensor, y: Tensor, scale: float, half: bool) -> dict[str, Tensor]:
    net.zero_grad()
    with torch.autocast("cpu", torch.float16, enabled=half, cache_enabled=False):
        loss = F.cross_entropy(net(x).float(), y)
    (loss * scale).backward()
    return {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}


def runs() -> Iterator[tuple[str, float, float, float, bool]]:
    """Model, loss scale, true and estimated lost share, and whether float16 was recognised."""
    for name, make in MODELS.items():
        for size in (8, 64):
            for steps in (0, 40):
                torch.manual_seed(size + steps)
                net = make()
                y = torch.randint(0, 10, (256,))
                x = torch.randn(10, 20)[y] + torch.randn(256, 20)
                optimizer = torch.optim.Adam(net.parameters(), 3e-3)
                for _ in range(steps):
                    optimizer.zero_grad()
                    F.cross_entropy(net(x), y).backward()
                    optimizer.step()
                truth = gradients(net, x[:size], y[:size], 1.0, False)
                tables = frozenset({"table.weight"})
                for scale in SCALES:
                    found = gradients(net, x[:size], y[:size], scale, True)
                    if not all(g.isfinite().all() for g in found.values()):
                        continue
                    rows = Measuring().take(found, formats=True).read()
                    estimate, each = lost_shares(rows, frozenset(), tables)
                    judged = [n for n in found if not math.isnan(each[n])]
                    lost = sum(int(((found[n] == 0) & (truth[n] != 0)).sum()) for n in judged)
                    total = sum(found[n].numel() for n in judged)
                    yield name, scale, lost / total, estimate, passed_through_half(rows)


def test_the_estimate_finds_damaged_runs_and_accuses_no_healthy_one(capsys: pytest.CaptureFixture[str]) -> None:
    table = list(runs())
    damaged = [estimate > RUN_SHARE for _, _, true, estimate, _ in table if true > RUN_SHARE]
    badly = [estimate > RUN_SHARE for _, _, true, estimate, _ in table if true > 0.25]
    healthy = [(name, scale, estimate) for name, scale, true, estimate, _ in table if true < 0.01]
    accused = [run for run in healthy if run[2] > RUN_SHARE]
    errors = [abs(true - estimate) for _, _, true, estimate, _ in table]
    live = [estimate for _, scale, _, estimate, _ in table if scale >= 256]
    with capsys.disabled():
        print(
            f"\n{len(table)} runs: {sum(damaged)}/{len(damaged)} that lose over 10 % found, "
            f"{sum(badly)}/{len(badly)} over 25 %, {len(accused)}/{len(healthy)} under 1 % accused, "
            f"mean error {sum(errors) / len(errors):.3f}, largest estimate under a live scale {max(live):.3f}"
        )
    assert len(damaged) >= 20
    assert len(healthy) >= 80
    assert sum(damaged) >= 0.85 * len(damaged)
    assert sum(badly) >= 0.9 * len(badly)
    assert not accused
    assert sum(errors) / len(errors) < 0.04
    assert max(live) < RUN_SHARE / 2
    assert sum(known for *_, known in table) >= 0.9 * len(table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 2.0**-12, 2.0**-20, 2.0**-28])
def test_other_formats_are_not_taken_for_float16(dtype: torch.dtype, size: float) -> None:
    gradient = (torch.randn(4096) * size).to(dtype).float()
    assert not passed_through_half(Measuring().take({"w": gradient}, formats=True).read())


def row(gradient: Tensor) -> Statistics:
    (found,) = Measuring().take({"w": gradient}, formats=True).read()
    return found


def test_natural_zeros_are_not_lost() -> None:
    gradient = torch.randn(4096).half().float() * (torch.rand(4096) > 0.9)
    assert lost_share(row(gradient), False, 1.0, table=False) == 0


def test_a_tensor_that_did_not_pass_through_float16_cannot_be_told() -> None:
    assert math.isnan(lost_share(row(torch.randn(4096) * 2.0**-26), False, 1.0, table=False))


def test_a_tensor_without_any_gradient_is_lost_only_where_the_run_is_small() -> None:
    nothing = row(torch.zeros(100))
    assert lost_share(nothing, False, 2.0**-10, table=False) == 1
    assert lost_share(nothing, False, 0.5, table=False) == 0
    assert lost_share(nothing, False, 2.0**-10, table=True) == 0


def test_a_share_is_the_one_that_rounding_took() -> None:
    truth = torch.distributions.Laplace(0.0, 2.0**-23).sample((20_000,))
    rounded = truth.half().float()
    estimate = lost_share(row(rounded), False, 1.0, table=True)
    assert abs(estimate - float((rounded == 0).float().mean())) < 0.08
