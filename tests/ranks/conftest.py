"""One server of ranks for all tests of a process."""

from collections.abc import Iterator

import pytest
import torch

from .processes import Ranks, serving


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def _able_to_shard(request: pytest.FixtureRequest) -> None:
    """FSDP's second version records events on its device, which older torch has none of on a CPU."""
    shards = "sharded" in request.node.name and "tensor-parallel" not in request.node.name
    if shards and not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("this torch cannot shard on a CPU")
