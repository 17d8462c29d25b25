import pytest

from sanity_watchdog.portability.precision import ACCELERATORS, PRECISIONS, TABLE, release, row, rows


def test_every_cell_is_filled_with_a_known_outcome_and_a_source():
    assert set(TABLE) == {(a, p) for a in ACCELERATORS for p in PRECISIONS}
    for cell, rule in TABLE.items():
        assert rule.outcome in {"works", "differs", "ignored", "fails", "unknown"}, cell
        assert rule.source, cell
        assert rule.reason or rule.outcome == "works", cell


@pytest.mark.parametrize(
    ("target", "precision", "torch", "outcome"),
    [
        ("mps", "16-mixed", "2.7.1", "fails"),
        ("mps", "16-mixed", "2.8.0+cpu", "works"),
        ("mps", "bf16-mixed", "2.5.0", "fails"),
        ("mps", "bf16-mixed", "2.6.0", "works"),
        ("mps", "64-true", "2.13.0", "fails"),
        ("cpu", "16-mixed", "2.13.0", "ignored"),
        ("xla", "bf16-mixed", "2.13.0", "fails"),
        ("tpu", "bf16-true", "2.13.0", "works"),
        ("cuda", "transformer-engine-float16", "2.13.0", "works"),
        ("cuda", "7-true", "2.13.0", "unknown"),
    ],
)
def test_rows(target, precision, torch, outcome):
    assert row(target, precision, torch).outcome == outcome


def test_a_version_that_is_too_old_is_named():
    found = row("mps", "16-mixed", "2.7.1+cpu")
    assert found.reason == "needs torch >= 2.8, this is 2.7.1"
    assert row("mps", "bf16-true", "2.13.0").needs == "torch >= 2.3, macOS >= 14"


def test_all_rows():
    assert len(rows("2.13.0")) == len(ACCELERATORS) * len(PRECISIONS)


@pytest.mark.parametrize(
    ("text", "version"), [("2.13.0+cpu", (2, 13)), ("2.15", (2, 15)), ("nightly", (0, 0)), ("", (0, 0))]
)
def test_release(text, version):
    assert release(text) == version
