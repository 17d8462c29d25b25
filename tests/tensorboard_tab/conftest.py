"""One TensorBoard of each kind for all tests of the tab."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from . import logs
from .boards import Board, serve, serves


@pytest.fixture(scope="session")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Board]]:
    """By the kind of data server: ``fast`` and ``slow``, the latter behind a path prefix."""
    folder = tmp_path_factory.mktemp("tab") / "logs"
    folder.mkdir()
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        kinds = {
            "fast": serve(folder, "--load_fast=true"),
            "slow": serve(folder, "--load_fast=false", prefix="/some/where"),
        }
        starting = {kind: pool.submit(stack.enter_context, one) for kind, one in kinds.items()}
        logs.crowded(folder / "crowded", alerts=10_000, layers=1_000, steps=20)
        for name, make in logs.RUNS.items():
            make(folder / name)
        found = {kind: one.result() for kind, one in starting.items()}
        for board in found.values():
            board.wait_for(serves(*logs.RUNS, "crowded"))
        yield found
