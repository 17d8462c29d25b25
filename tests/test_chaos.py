"""Whatever function of the watchdog's raises, the run is what it is without it; ``python -m tests.chaos`` tries all."""

import sys
from collections.abc import Iterator

import pytest

from sanity_watchdog.observe import replaced

from .chaos import KINDS, calls, harmed


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A fault planted where functions are given back leaves them replaced: later tests get the real ones."""
    yield
    for place in replaced._PLACES.values():
        setattr(place.home, place.name, place.real)
    replaced._PLACES.clear()


WITHIN, BESIDE = 24, 120
"""Of the functions that run within the user's code every 24th is tried here, of the others, behind one guard, every
120th; each kind of run begins elsewhere."""

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame does not tell the class of its function")


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_of_ours_that_raises_is_not_noticed(kind: str) -> None:
    undisturbed, found, within = calls(kind)
    assert len(found) > 500
    assert len(within) > 100
    first = 8 * sorted(KINDS).index(kind)
    places = [*sorted(within)[first::WITHIN], *sorted(found.keys() - within)[first::BESIDE]]
    assert not harmed(kind, undisturbed, [(p, found[p] if i % 2 else 1) for i, p in enumerate(places)])


def test_a_guard_that_raises_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.GUARDS", frozenset())
    undisturbed, found, _ = calls("automatic")
    place = next(p for p in found if p.name == "Inside.do")
    assert len(harmed("automatic", undisturbed, [(place, 1)])) == 1
