from dataclasses import replace
from typing import Any

import pytest

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.checks import Check, Skip
from sanity_watchdog.checks.modes import eval_mode, extreme_dropout, stale_statistics
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.modes import (
    DropoutCall,
    Dropouts,
    Normalisation,
    Resting,
    RunningStatistics,
    TrainingModes,
)

BACKBONE = Resting(name="backbone", kind="Sequential", layers=("backbone.1 (BatchNorm2d)",))
ROOT = Resting(name="", kind="Classifier", layers=("net.1 (BatchNorm1d)", "net.3 (Dropout)"))
BATCH_NORM = Resting(name="net.1", kind="BatchNorm1d", layers=("net.1 (BatchNorm1d)",), alone=True)
CALL = DropoutCall(function="dropout", rate=0.5, owner="Net", where="net.py:12")
FITS = Normalisation(name="norm", shift=0.3, spread=1.3, rows=32, momentum=0.1, updates=34)
SHIFTED = replace(FITS, shift=3.0)
NARROW = replace(FITS, spread=0.2)
BROKEN = replace(FITS, shift=float("nan"))
FIXED = replace(FITS, shift=0.35, momentum=0.0, updates=8)
SLOW = replace(FITS, shift=3.0, momentum=0.01)
SMALL = replace(FITS, shift=3.0, spread=9.0, rows=4)


def statistics(*samples: Normalisation) -> RunningStatistics:
    return RunningStatistics(samples=tuple((one,) for one in samples))


FIRING: list[tuple[Check[Any], Evidence]] = [
    (eval_mode, TrainingModes(resting=(ROOT,), modules=5)),
    (eval_mode, TrainingModes(resting=(BACKBONE,), modules=5)),
    (eval_mode, TrainingModes(resting=(BACKBONE,), modules=5, targets=True)),
    (
        eval_mode,
        TrainingModes(resting=(Resting(name="net", kind="Net", layers=("net.d",), flipped=True),), modules=5, since=13),
    ),
    (eval_mode, TrainingModes(resting=(replace(BACKBONE, override="Detector"),), modules=5)),
    (eval_mode, TrainingModes(resting=(Resting(name="", kind="Net"),), modules=5)),
    (eval_mode, TrainingModes(resting=(Resting(name="net", kind="Sequential"), BATCH_NORM), modules=5)),
    (eval_mode, TrainingModes(resting=(BATCH_NORM,), modules=5)),
    (eval_mode, TrainingModes(resting=(replace(BATCH_NORM, fresh=True), replace(BATCH_NORM, name="a")), modules=5)),
    (extreme_dropout, Dropouts(rates=(("net.2", 0.99), ("net.4", 0.5), ("net.6", 0.95)))),
    (extreme_dropout, Dropouts(rates=(("net.2", float("nan")),))),
    (extreme_dropout, Dropouts(calls=(CALL,), stage="validation")),
    (extreme_dropout, Dropouts(drops=(("dropout", 0.1, "net.py:5"), ("dropout", 1.0, "net.py:9")))),
    (
        extreme_dropout,
        Dropouts(
            calls=(
                DropoutCall(
                    function="scaled_dot_product_attention", rate=0.1, owner="Block", where="net.py:40", attention=True
                ),
            ),
            stage="validation",
        ),
    ),
    (
        extreme_dropout,
        Dropouts(calls=(DropoutCall(function="dropout", rate=0.5, owner="net.3", where="net.py:12", meant=True),)),
    ),
    (extreme_dropout, Dropouts(outputs=(("cross_entropy", 0.5, "net.py:14"),))),
    (stale_statistics, statistics(FITS, SHIFTED, SHIFTED)),
    (stale_statistics, statistics(NARROW, NARROW)),
    (stale_statistics, replace(statistics(FITS, FITS), forgotten=("teacher.1", "teacher.4"))),
    (stale_statistics, statistics(BROKEN, BROKEN)),
    (stale_statistics, statistics(FIXED, FIXED)),
    (stale_statistics, RunningStatistics(samples=(), evaluated=("net.1", "net.4"), stage="validation")),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (eval_mode, TrainingModes(resting=(), modules=5)),
    (extreme_dropout, Dropouts(rates=(("net.2", 0.1), ("net.4", 0.9)))),
    (extreme_dropout, Dropouts(calls=(), stage="validation")),
    (extreme_dropout, Dropouts(drops=(("dropout", 0.5, "net.py:5"), ("dropout", 0.9, "net.py:9")))),
    (stale_statistics, statistics(FITS, FITS)),
    (stale_statistics, statistics(SHIFTED, FITS)),
    (stale_statistics, statistics(replace(FIXED, shift=0.2), FIXED)),
    (stale_statistics, RunningStatistics(samples=((SHIFTED, FITS), (replace(SHIFTED, name="other"), FITS)))),
    (stale_statistics, statistics(SHIFTED)),
    (stale_statistics, statistics(SMALL, SMALL)),
    (stale_statistics, statistics(SLOW, SLOW)),
]


def only(check: Check[Any], seen: Evidence) -> Alert:
    (found,) = (f for f in check(seen) if isinstance(f, Alert))
    return found


@pytest.mark.parametrize(
    ("resting", "since", "severity"),
    [
        pytest.param((ROOT,), None, Severity.ERROR, id="fires-whole-module"),
        pytest.param((BACKBONE,), None, Severity.WARNING, id="fires-backbone-from-the-start"),
        pytest.param((Resting(name="", kind="Net"),), None, Severity.WARNING, id="fires-whole-module-without-effect"),
        pytest.param((Resting(name="net", kind="Net"),), None, Severity.INFO, id="quiet-part-without-effect"),
        pytest.param((BATCH_NORM,), None, Severity.INFO, id="quiet-single-layers"),
    ],
)
def test_how_bad_eval_mode_is(resting: tuple[Resting, ...], since: int | None, severity: Severity) -> None:
    assert only(eval_mode, TrainingModes(resting=resting, modules=5, since=since)).severity is severity


def test_a_flip_is_an_error_and_names_its_step() -> None:
    flipped = Resting(name="net", kind="Net", layers=("net.d (Dropout)",), flipped=True)
    alert = only(eval_mode, TrainingModes(resting=(flipped,), modules=5, since=13))
    assert alert.severity is Severity.ERROR
    assert "first noticed at step 13" in alert.message


def test_dropout_in_evaluation_points_at_the_call() -> None:
    meant = DropoutCall(function="dropout", rate=0.1, owner="mc", where="a.py:1", meant=True)
    alert = only(extreme_dropout, Dropouts(calls=(meant, CALL)))
    assert (alert.severity, alert.where, alert.subjects) == (Severity.WARNING, "net.py:12", ("Net",))
    assert only(extreme_dropout, Dropouts(calls=(meant,))).severity is Severity.INFO


def test_the_limit_of_dropout_is_an_option() -> None:
    seen = Dropouts(rates=(("net.2", 0.9),))
    assert not list(extreme_dropout(seen))
    assert list(extreme_dropout(seen, rate=0.9))


def test_statistics_that_cannot_move_are_told_apart() -> None:
    assert "momentum=0 " in only(stale_statistics, statistics(FIXED, FIXED)).hint
    assert "stood still" in only(stale_statistics, statistics(SHIFTED, SHIFTED)).hint


@pytest.mark.parametrize("layer", [SMALL, SLOW], ids=["small-batches", "still-settling"])
def test_what_cannot_be_judged_is_skipped_with_a_reason(layer: Normalisation) -> None:
    (found,) = stale_statistics(statistics(layer, layer))
    assert isinstance(found, Skip)
