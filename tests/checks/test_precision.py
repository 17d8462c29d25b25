import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.precision import dtype_mismatch, precision_fallback
from sanity_watchdog.evidence.runtime import DtypeClash, NamedTensor, PrecisionUse, StepFormats

WEIGHT = NamedTensor("net.0.weight", "float32", "cpu", (64, 20), "registered")
DOUBLE = NamedTensor("batch[0]", "float64", "cpu", (32, 20), "batch")
LABELS = NamedTensor("batch[1]", "int64", "cpu", (32,), "batch")
INPUT = NamedTensor("input", "float64", "cpu", (32, 20))
REFUSED = "mat1 and mat2 must have the same dtype, but got Double and Float"


def use(asked, used=None, **changes):
    return PrecisionUse(asked=asked, used=used or asked, **changes)


FIRING = [
    (precision_fallback, use("16-mixed", "bf16-mixed", autocast_device="cpu", forward=("bfloat16",))),
    (precision_fallback, use("bf16-mixed", autocast_device="cuda", forward=("off",))),
    (precision_fallback, use("16-mixed", autocast_device="cuda", scaler="disabled")),
    (precision_fallback, use("bf16-mixed", autocast_device="cpu", forward=("off",))),
    (precision_fallback, use("bf16-true", weights=("float32",))),
    (precision_fallback, use("bf16-mixed", accelerator="cuda", autocast_device="cuda", emulated=True)),
    (
        dtype_mismatch,
        DtypeClash(error=REFUSED, module="net.0", where="train.py:12", tensors=(DOUBLE, WEIGHT, LABELS)),
    ),
    (
        dtype_mismatch,
        DtypeClash(error=REFUSED, where="train.py:12", tensors=(INPUT, WEIGHT), batch=(DOUBLE, LABELS)),
    ),
    (dtype_mismatch, DtypeClash(error="Found dtype Long but expected Float")),
    (dtype_mismatch, StepFormats(batch=(DOUBLE, LABELS), loss="float64")),
]
QUIET = [
    (precision_fallback, use("32-true", forward=("off",))),
    (precision_fallback, use("32", "32-true")),
    (precision_fallback, use("16", "16-mixed", autocast_device="cpu", scaler="enabled", forward=("float16",))),
    (precision_fallback, use("bf16-mixed", autocast_device="cpu", forward=("bfloat16",))),
    (precision_fallback, use("bf16-mixed", autocast_device="cpu", forward=("bfloat16", "off"))),
    (precision_fallback, use("bf16-mixed", autocast_device="cpu")),
    (precision_fallback, use("bf16-true", weights=("bfloat16", "float32"))),
    (precision_fallback, use("64-true", weights=("float64",))),
    (precision_fallback, use("bf16-true", weights=())),
    (dtype_mismatch, StepFormats(batch=(DOUBLE, LABELS), loss="float32")),
    (dtype_mismatch, StepFormats(batch=(DOUBLE,), weights=("float64",), loss="float64")),
    (dtype_mismatch, StepFormats(loss="")),
]


@pytest.mark.parametrize(("check", "seen"), FIRING, ids=lambda v: f"fires-{getattr(v, 'code', '')}")
def test_fires(check, seen):
    assert [a.code for a in judge(seen, (check,)).alerts] == [check.code]


@pytest.mark.parametrize(("check", "seen"), QUIET, ids=lambda v: f"quiet-{getattr(v, 'code', '')}")
def test_quiet(check, seen):
    judgement = judge(seen, (check,))
    assert not judgement.alerts
    assert judgement.judged == {check.code}


def test_a_promoted_loss_and_an_emulated_format_are_no_alarm():
    quiet = [FIRING[5], FIRING[9]]
    assert {a.severity for check, seen in quiet for a in judge(seen, (check,)).alerts} == {Severity.INFO}


def test_the_batch_is_named_before_local_variables():
    (alert,) = judge(DtypeClash(error=REFUSED, tensors=(INPUT, DOUBLE, WEIGHT)), (dtype_mismatch,)).alerts
    assert alert.subjects[0] == "batch[0]"
    assert "float64" in alert.message
    assert "float32" in alert.message
