"""Layer vectors to pictures."""

import base64
import math
from typing import Any

import numpy as np
import pytest

from sanity_watchdog.tensorboard_tab.heat import (
    COLUMNS,
    INFINITE,
    LEVELS,
    QUANTITIES,
    UNMEASURED,
    Series,
    known,
    picture,
)

NAN, INF = math.nan, math.inf


def series(names: list[str], vectors: dict[int, list[float]]) -> Series:
    return Series(names, list(vectors), [np.array(v, np.float32) for v in vectors.values()])


def drawn(name: str, *found: Series) -> dict[str, Any]:
    seen = picture(name, found)
    assert seen is not None
    return seen


def cells(seen: dict[str, Any]) -> list[list[int]]:
    raw = np.frombuffer(base64.b64decode(seen["cells"]), "<u2")
    return [list(map(int, line)) for line in raw.reshape(len(seen["names"]), len(seen["steps"]))]


def test_values_are_told_from_what_is_infinite_and_not_measured() -> None:
    seen = drawn("underflow_share", series(["a", "b"], {0: [0.0, NAN], 3: [1.0, INF]}))
    assert (seen["names"], seen["steps"], seen["low"], seen["high"]) == (["a", "b"], [0, 3], 0.0, 1.0)
    assert cells(seen) == [[0, LEVELS], [UNMEASURED, INFINITE]]


@pytest.mark.parametrize(
    ("name", "order"),
    [("zero_gradient_share", [2, 1, 0]), ("log2_overflow_headroom", [0, 1, 2]), ("log2_largest_gradient", [0, 2, 1])],
    ids=["high", "low", "far"],
)
def test_the_worst_layers_come_first(name: str, order: list[int]) -> None:
    seen = drawn(name, series(["a", "b", "c"], {0: [-9.0, 0.0, 1.0], 1: [-8.0, 0.5, 5.0]}))
    assert seen["order"] == order


def test_layers_that_were_never_measured_come_last_and_keep_their_order() -> None:
    seen = drawn("zero_gradient_share", series(["a", "b", "c", "d"], {0: [NAN, 0.5, NAN, 0.5]}))
    assert seen["order"] == [1, 3, 0, 2]


@pytest.mark.parametrize(("name", "spike"), [("zero_gradient_share", 1.0), ("log2_overflow_headroom", -1.0)])
def test_a_spike_survives_the_merging_of_columns(name: str, spike: float) -> None:
    vectors = {step: [0.5, NAN] for step in range(5 * COLUMNS)}
    vectors[333] = [spike, NAN]
    seen = drawn(name, series(["a", "b"], vectors))
    assert (seen["merged"], len(seen["steps"])) == (5, COLUMNS)
    first, second = cells(seen)
    extreme = max if spike > 0 else min
    assert first.index(extreme(first)) == 333 // 5
    assert set(second) == {UNMEASURED}
    assert spike == pytest.approx(seen["high"] if spike > 0 else seen["low"])


def test_far_from_the_median_counts_on_both_sides() -> None:
    vectors = {step: [0.0] for step in range(2 * COLUMNS)}
    vectors[10], vectors[21] = [-20.0], [20.0]
    (line,) = cells(seen := drawn("log2_largest_gradient", series(["a"], vectors)))
    assert (line[5], line[10]) == (0, LEVELS)
    assert seen["scale"] == (-20.0, 20.0)


def test_tags_of_one_quantity_become_one_picture() -> None:
    first, second = series(["a", "b"], {0: [0.1, 0.2], 2: [0.3, 0.4]}), series(["c"], {1: [1.0]})
    seen = drawn("zero_gradient_share", first, second)
    assert (seen["names"], seen["steps"]) == (["a", "b", "c"], [0, 1, 2])
    assert [line.count(UNMEASURED) for line in cells(seen)] == [1, 1, 2]


def test_nothing_finite_and_nothing_at_all() -> None:
    assert cells(drawn("x", series(["a"], {0: [NAN], 1: [-INF]}))) == [[UNMEASURED, INFINITE]]
    assert picture("x", []) is None
    assert picture("x", [series(["a"], {}), series([], {0: []})]) is None


def test_equal_values_are_drawn() -> None:
    assert cells(drawn("x", series(["a", "b"], {0: [3.0, 3.0]}))) == [[0], [0]]


@pytest.mark.parametrize("name", [*QUANTITIES, "dead_unit_share", "log2_activation", "rank"])
def test_every_quantity_has_words_and_a_scale(name: str) -> None:
    seen = drawn(name, series(["a"], {0: [0.25]}))
    assert seen["title"]
    assert seen["worst"] in ("high", "low", "far")
    assert seen["scale"][0] <= 0.25 <= seen["scale"][1]


def test_an_unknown_quantity_is_guessed_from_its_name() -> None:
    assert (known("dead_unit_share").title, known("dead_unit_share").unit) == ("Dead unit", "share")
    assert (known("log2_activation").unit, known("log2_activation").worst) == ("log2", "far")
