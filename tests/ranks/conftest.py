"""One server of ranks for all tests of a process."""

from collections.abc import Iterator

import pytest

from .processes import Ranks, serving


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    with serving() as server:
        yield server
