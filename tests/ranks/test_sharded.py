"""Sharded parameters: each rank judges its part, sums go over all of them, and what cannot be judged is skipped."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sanity_watchdog.observe.sharding import local, share, squares
from sanity_watchdog.observe.tensors import Measuring
from sanity_watchdog.records import read

from .marks import SHARDS
from .processes import Ranks

CASES = [
    pytest.param("sharded", 2, marks=SHARDS),
    pytest.param("sharded", 4, marks=SHARDS),
    ("tensor-parallel", 2),
]


@pytest.mark.parametrize(("case", "world"), CASES)
def test_healthy_sharded_training_is_quiet(ranks: Ranks, tmp_path: Path, case: str, world: int) -> None:
    found = ranks.run(case, tmp_path, world, trainer={"max_steps": 40})
    assert found.statuses == [0] * world, found.logs
    found.assert_quiet(40)
    assert "shards the parameters" in found.seen[0]["skipped"]["WD601"]
    assert ("WD602" in found.seen[0]["judged"]) == (case == "sharded")
    if case == "sharded":
        assert "sharded parameters" in found.seen[0]["skipped"]["WD214"]
    assert {"WD311", "WD312", "WD314", "WD301", "WD303", "WD211"} <= set(found.seen[0]["judged"])


@pytest.mark.parametrize(("case", "world"), CASES)
def test_the_norm_of_sharded_gradients_is_that_of_the_whole(
    ranks: Ranks, tmp_path: Path, case: str, world: int
) -> None:
    ranks.run(case, tmp_path, world)
    true = json.loads((tmp_path / "norms0.json").read_text())
    told = {
        r["step"]: r["values"]["gradient_norm"]
        for r in read(tmp_path / "watchdog.jsonl").records
        if r["type"] == "scalars" and "gradient_norm" in r["values"]
    }
    assert len(told) >= 8
    assert told == {step: pytest.approx(true[step], rel=1e-5) for step in told}


@SHARDS
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("softmax", "WD102"),
        ("nan", "WD142"),
        ("zeroed", "WD301"),
        ("lost", "WD142"),
        ("outside", "WD311"),
        ("foreign", "WD312"),
        ("rate", "WD501"),
        ("detached", "WD109"),
    ],
)
def test_faults_of_sharded_trainings_are_named(ranks: Ranks, tmp_path: Path, fault: str, code: str) -> None:
    found = ranks.run(f"sharded-{fault}", tmp_path)
    assert found.statuses == [0, 0], found.logs
    assert [a["code"] for a in found.alerts()] == [code]
    assert not found.seen[0]["broken"]
    if fault == "nan":
        assert found.alerts()[0]["ranks"][0] == 1


# -- against the whole tensor, on processes that are only imagined


@contextmanager
def imagined(world: int) -> Iterator[None]:
    """A process group of ``world`` ranks that talks to nobody."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def shards(whole: Tensor, mesh: tuple[int, ...], placements: list[int | None]) -> list[Tensor]:
    """What each rank of a mesh holds of ``whole``; a placement is the dimension that is cut, None for a copy."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    devices = init_device_mesh("cpu", mesh)
    kinds = [Replicate() if p is None else Shard(p) for p in placements]
    found = []
    for place in torch.cartesian_prod(*(torch.arange(n) for n in mesh)).view(-1, len(mesh)).tolist():
        part = whole
        for index, count, dim in zip(place, mesh, placements, strict=True):
            if dim is not None:
                parts = part.tensor_split([-(-part.shape[dim] // count) * i for i in range(1, count)], dim)
                part = parts[index]
        found.append(
            DTensor.from_local(part, devices, kinds, run_check=False, shape=whole.shape, stride=whole.stride())
        )
    return found


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 5)),
    mesh=st.sampled_from([(2,), (4,), (2, 2), (3, 2)]),
    dims=st.lists(st.sampled_from([0, 1, None]), min_size=2, max_size=2),
    seed=st.integers(0, 1000),
)
def test_measures_of_the_parts_make_up_those_of_the_whole(
    shape: tuple[int, int], mesh: tuple[int, ...], dims: list[int | None], seed: int
) -> None:
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    whole[whole.abs() < 0.3] = 0
    world = math.prod(mesh)
    with imagined(world):
        parts = shards(whole, mesh, dims[: len(mesh)])
        rows = [Measuring().take({"w": part}).read() for part in parts]
        weights = [share(part, world) for part in parts]
        summands = [squares([part], world) for part in parts]
    kept = [(row[0], weight) for row, weight in zip(rows, weights, strict=True) if row]
    assert sum(r.numel * w for r, w in kept) == pytest.approx(whole.numel())
    assert sum(r.norm**2 * w for r, w in kept) == pytest.approx(whole.norm().item() ** 2, rel=1e-5)
    assert sum(s.item() for s in summands if s is not None) == pytest.approx(whole.norm().item() ** 2, rel=1e-5)
    assert max(r.largest for r, _ in kept) == whole.abs().max()
    zeros = sum(r.zero_share * r.numel * w for r, w in kept)
    assert zeros == pytest.approx((whole == 0).sum().item(), abs=1e-4)
    assert all(local(part).numel() == 0 for part, row in zip(parts, rows, strict=True) if not row)


def test_whole_tensors_count_once() -> None:
    whole = torch.ones(3, 4)
    assert share(whole, 8) == 1 / 8
    assert squares([whole, whole], 8) == 24 / 8
    assert squares([torch.zeros(0)], 8) is None
