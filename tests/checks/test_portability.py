import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks import Skip
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.portability import (
    float64_on_target,
    missing_operator,
    operator_falls_back,
    unsupported_precision,
)
from sanity_watchdog.evidence.portability import (
    OperatorCall,
    OperatorGap,
    Operators,
    PrecisionOnTargets,
    PrecisionRow,
    WideTensors,
)

TORCH = "torch 2.13.0"
PDIST = OperatorCall("aten::_pdist_forward", "forward", "", "train.py:31")
PDIST_BACK = OperatorCall("aten::_pdist_backward", "backward", "", "train.py:31", calls=2)
SVD = OperatorCall("aten::_linalg_svd", "forward", "head", "model.py:12")
LINSPACE = OperatorCall("aten::linspace", "forward", "", "train.py:20", wide=True)


def gap(call, target="mps", missing=True, way_out=""):
    return OperatorGap(call, target, missing, TORCH, way_out)


def operators(*gaps, targets=(("mps", TORCH),), **changes):
    return Operators(count=40, gaps=gaps, targets=targets, **changes)


def precisions(*rows):
    return PrecisionOnTargets(rows=rows)


FIRING = [
    (float64_on_target, WideTensors(targets=("mps",), held=("batch[1]",), calls=(LINSPACE,))),
    (float64_on_target, WideTensors(targets=("mps",), calls=(LINSPACE,))),
    (missing_operator, operators(gap(PDIST, way_out="use torch.cdist(x, x)"), gap(PDIST_BACK))),
    (missing_operator, operators(gap(PDIST), gap(PDIST, "tpu"), targets=(("mps", TORCH), ("tpu", "torch_tpu 0.2.0")))),
    (operator_falls_back, operators(gap(SVD, missing=False))),
    (operator_falls_back, operators(gap(PDIST), fallback=True)),
    (unsupported_precision, precisions(PrecisionRow("mps", "64-true", "fails", "MPS has no float64"))),
    (unsupported_precision, precisions(PrecisionRow("xpu", "bf16-mixed", "ignored", "trains in float32"))),
    (unsupported_precision, precisions(PrecisionRow("tpu", "32-true", "differs", "bfloat16 inputs by default"))),
    (unsupported_precision, precisions(PrecisionRow("mps", "bf16-true", "works", "", "torch >= 2.3, macOS >= 14"))),
]
QUIET = [
    (float64_on_target, WideTensors(targets=("mps",))),
    (missing_operator, operators()),
    (missing_operator, operators(gap(SVD, missing=False))),
    (missing_operator, operators(gap(PDIST), fallback=True)),
    (operator_falls_back, operators(gap(PDIST))),
    (unsupported_precision, precisions(PrecisionRow("cuda", "16-mixed", "works"))),
    (unsupported_precision, precisions(PrecisionRow("xpu", "64-true", "unknown"))),
]


@pytest.mark.parametrize(("check", "seen"), FIRING, ids=lambda v: f"fires-{getattr(v, 'code', '')}")
def test_fires(check, seen):
    assert {a.code for a in judge(seen, (check,)).alerts} == {check.code}


@pytest.mark.parametrize(("check", "seen"), QUIET, ids=lambda v: f"quiet-{getattr(v, 'code', '')}")
def test_quiet(check, seen):
    judgement = judge(seen, (check,))
    assert not judgement.alerts
    assert judgement.judged == {check.code}


def test_operators_of_one_line_are_one_alert_that_names_its_torch():
    (alert,) = judge(FIRING[2][1], (missing_operator,)).alerts
    assert alert.subjects == ("aten::_pdist_forward", "aten::_pdist_backward")
    assert alert.where == "train.py:31"
    assert TORCH in alert.message
    assert alert.hint == "use torch.cdist(x, x)"
    assert dict(alert.evidence)["calls"] == 3


def test_what_the_step_makes_itself_is_no_certainty():
    held, made = (judge(seen, (check,)).alerts[0] for check, seen in FIRING[:2])
    assert (held.severity, made.severity) == (Severity.ERROR, Severity.WARNING)


@pytest.mark.parametrize("check", [missing_operator, operator_falls_back], ids=lambda c: c.code)
def test_a_target_that_cannot_be_judged_is_said_aloud(check):
    seen = operators(targets=(), unjudged=(("tpu", "torch_tpu is not installed"),))
    assert list(check(seen)) == [Skip("tpu: torch_tpu is not installed")]


def test_what_was_judged_is_said_beside_what_was_not():
    seen = operators(unjudged=(("tpu", "torch_tpu is not installed"),), foreign=("torchvision",))
    (skip,) = missing_operator(seen)
    assert skip.reason == "tpu: torch_tpu is not installed; no table knows torchvision; judged for mps"


def test_the_fallback_of_mps_excuses_no_other_target():
    seen = operators(gap(PDIST, "xpu"), fallback=True, targets=(("xpu", TORCH),))
    assert [a.code for a in judge(seen, (missing_operator, operator_falls_back)).alerts] == ["WD406"]


def test_severity_follows_the_outcome():
    found = [judge(seen, (check,)).alerts[0].severity for check, seen in FIRING[6:]]
    assert found == [Severity.ERROR, Severity.WARNING, Severity.INFO, Severity.INFO]
