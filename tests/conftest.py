"""Settings of every test: one thread, no chatter, nothing inherited from a CI environment."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

for name in ("CI", "SANITY_WATCHDOG", "SANITY_WATCHDOG_FAIL_ON", "SANITY_WATCHDOG_RECORD"):
    os.environ.pop(name, None)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden renderings of alerts")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder and an environment of its own.

    Distributed runs leave a group, and a port in ``os.environ``; deterministic ones leave torch deterministic.
    """
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    yield
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is not None and frames.cached_backends:  # else the next test's modules count as compiled, too
        sys.modules["torch._dynamo"].reset()
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
    if (torch := sys.modules.get("torch")) is not None:
        torch.use_deterministic_algorithms(False)
    os.environ.clear()
    os.environ.update(before)
