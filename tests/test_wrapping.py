import copy
import pickle
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from sanity_watchdog.wrapping import Wrapping


class Strategy:
    def step(self, x: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x + 1


@contextmanager
def noted(notes: list[Any], word: str) -> Any:
    notes.append(word)
    try:
        yield
    finally:
        notes.append(f"/{word}")


def test_the_method_runs_inside_and_its_result_is_seen() -> None:
    strategy, notes, wrapping = Strategy(), [], Wrapping()
    wrapping.wrap(strategy, "step", lambda: noted(notes, "a"), notes.append)
    assert strategy.step(1) == 2
    assert notes == ["a", "/a", 2]
    wrapping.undo()
    assert vars(strategy) == {}


def test_a_raise_leaves_the_scope_and_skips_the_result() -> None:
    strategy, notes, wrapping = Strategy(), [], Wrapping()
    wrapping.wrap(strategy, "step", lambda: noted(notes, "a"), notes.append)
    with pytest.raises(ValueError, match="negative"):
        strategy.step(-1)
    assert notes == ["a", "/a"]
    assert str(wrapping.raised) == "negative"
    wrapping.undo()
    assert wrapping.raised is None


def test_somebody_elses_wrapper_survives() -> None:
    strategy, wrapping = Strategy(), Wrapping()
    strategy.step = theirs = lambda x: 10 * x  # type: ignore[method-assign]
    wrapping.wrap(strategy, "step", lambda: noted([], "a"))
    wrapping.wrap(strategy, "step", lambda: noted([], "b"))
    assert strategy.step(2) == 20
    wrapping.undo()
    assert strategy.step is theirs


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_the_owner_has_the_method_alone(copied: Callable[[Strategy], Strategy]) -> None:
    strategy, notes, wrapping = Strategy(), [], Wrapping()
    wrapping.wrap(strategy, "step", lambda: noted(notes, "a"), notes.append)
    other = copied(strategy)
    wrapping.undo()
    assert other.step(1) == 2
    assert not notes
