import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.shapes import changing_shapes, host_read_in_step, recompiling
from sanity_watchdog.evidence.portability import BatchShapes, Compilations, DependentShapes, HostReads, OperatorCall

TPU = ("tpu",)
INDEX = OperatorCall("aten::index.Tensor", "forward", "", "train.py:50", depends="shape")
ITEM = OperatorCall("aten::_local_scalar_dense", "forward", "", "train.py:51", calls=2, depends="value")


def shapes(batches, distinct, once, **changes):
    return BatchShapes(targets=TPU, batches=batches, distinct=distinct, once=once, **changes)


FIRING = [
    (changing_shapes, shapes(16, 9, 6, examples=("batch (4, 20)", "batch (4, 22)"))),
    (changing_shapes, shapes(32, 6, 4)),
    (changing_shapes, shapes(1000, 9, 0)),
    (changing_shapes, BatchShapes(targets=TPU, ragged=5, size=32)),
    (changing_shapes, DependentShapes(targets=TPU, calls=(INDEX,))),
    (recompiling, Compilations(history=((3, 2, 0), (34, 14, 1)), reasons=("call to print",))),
    (recompiling, Compilations(history=((3, 4, 0), (34, 8, 0)), given_up=1)),
    (recompiling, Compilations(history=((3, 16, 0),), given_up=2)),
    (
        recompiling,
        Compilations(
            history=((3, 2, 0), (34, 14, 1)),
            given_up=1,
            function="forward",
            where="model.py:12",
            guard="tensor 'x' size mismatch at index 0. expected 24, actual 23",
        ),
    ),
    (host_read_in_step, HostReads(targets=("cuda",), calls=(ITEM,))),
]
QUIET = [
    (changing_shapes, shapes(500, 1, 0)),
    (changing_shapes, shapes(64, 2, 1)),
    (changing_shapes, shapes(64, 8, 1)),
    (changing_shapes, shapes(15, 5, 4)),
    (changing_shapes, shapes(0, 0, 0)),
    (changing_shapes, DependentShapes(targets=TPU)),
    (recompiling, Compilations(history=((3, 40, 2),))),
    (recompiling, Compilations(history=((3, 2, 0), (5, 4, 0), (900, 6, 0)))),
    (host_read_in_step, HostReads(targets=("cuda",))),
]


@pytest.mark.parametrize(("check", "seen"), FIRING, ids=lambda v: f"fires-{getattr(v, 'code', '')}")
def test_fires(check, seen):
    assert [a.code for a in judge(seen, (check,)).alerts] == [check.code]


@pytest.mark.parametrize(("check", "seen"), QUIET, ids=lambda v: f"quiet-{getattr(v, 'code', '')}")
def test_quiet(check, seen):
    judgement = judge(seen, (check,))
    assert not judgement.alerts
    assert judgement.judged == {check.code}


def test_a_smaller_last_batch_is_no_alarm():
    assert [a.severity for a in judge(FIRING[3][1], (changing_shapes,)).alerts] == [Severity.INFO]


def test_limits_are_options():
    seen = shapes(64, 8, 1)
    assert [a.code for a in judge(seen, (changing_shapes,), lambda _: {"most_shapes": 7}).alerts] == ["WD409"]
    assert not judge(shapes(32, 6, 4), (changing_shapes,), lambda _: {"share_once": 0.2}).alerts
