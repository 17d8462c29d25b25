"""What each accelerator makes of each Lightning precision, as data with reasons and sources."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..evidence.portability import PrecisionRow

PRECISIONS = ("32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed", "transformer-engine")
ACCELERATORS = ("cpu", "cuda", "mps", "xpu", "tpu")

CONNECTOR = "Lightning 2.6.6, accelerator_connector.py"
XLA = "Lightning 2.6.6, fabric/plugins/precision/xla.py"
MEASURED = "measured, torch 2.13 and Lightning 2.6.6 on a CPU"
WHEELS = "read in the macOS wheels of torch 2.3 to 2.15"
ENGINE = "NVIDIA Transformer Engine's requirements; not tried"


@dataclass(frozen=True)
class Rule:
    """One cell of the table; ``torch`` and ``macos`` are the first versions with which it holds."""

    outcome: str
    reason: str
    source: str
    torch: tuple[int, int] = (0, 0)
    macos: int = 0


TABLE: dict[tuple[str, str], Rule] = {
    ("cpu", "32-true"): Rule("works", "", MEASURED),
    ("cpu", "64-true"): Rule("works", "", MEASURED),
    ("cpu", "16-true"): Rule("works", "slow, and without a loss scaler", MEASURED),
    ("cpu", "bf16-true"): Rule("works", "", MEASURED),
    ("cpu", "16-mixed"): Rule("ignored", "becomes bf16-mixed, without a loss scaler", CONNECTOR),
    ("cpu", "bf16-mixed"): Rule("works", "", MEASURED),
    ("cpu", "transformer-engine"): Rule("fails", "needs an NVIDIA GPU", ENGINE),
    ("cuda", "32-true"): Rule("works", "convolutions use TF32 by default, matrix products do not", MEASURED),
    ("cuda", "64-true"): Rule("works", "", "PyTorch documentation"),
    ("cuda", "16-true"): Rule("works", "without a loss scaler: small gradients become zero", CONNECTOR),
    ("cuda", "bf16-true"): Rule("works", "emulated and slow before Ampere", "torch.cuda.is_bf16_supported"),
    ("cuda", "16-mixed"): Rule("works", "autocast and a loss scaler", CONNECTOR),
    ("cuda", "bf16-mixed"): Rule("works", "emulated and slow before Ampere", "torch.cuda.is_bf16_supported"),
    ("cuda", "transformer-engine"): Rule("works", "needs the package and a GPU from Hopper on", ENGINE),
    ("mps", "32-true"): Rule("works", "", "PyTorch documentation"),
    ("mps", "64-true"): Rule("fails", "MPS has no float64", "pytorch#122602; Lightning 2.6.6, strategies/strategy.py"),
    ("mps", "16-true"): Rule("works", "without a loss scaler: small gradients become zero", CONNECTOR),
    ("mps", "bf16-true"): Rule("works", "", "pytorch#119641", torch=(2, 3), macos=14),
    ("mps", "16-mixed"): Rule("works", "the loss scaler's kernels came with 2.8", WHEELS, torch=(2, 8)),
    ("mps", "bf16-mixed"): Rule("works", "autocast took float16 only before 2.6", WHEELS, torch=(2, 6), macos=14),
    ("mps", "transformer-engine"): Rule("fails", "needs an NVIDIA GPU", ENGINE),
    ("xpu", "32-true"): Rule("works", "by an Accelerator and a strategy of your own", CONNECTOR),
    ("xpu", "64-true"): Rule("unknown", "some of these GPUs have no float64", "not tried"),
    ("xpu", "16-true"): Rule("works", "without a loss scaler", CONNECTOR),
    ("xpu", "bf16-true"): Rule("works", "", CONNECTOR),
    ("xpu", "16-mixed"): Rule("ignored", "autocast and scaler are set up for cuda: trains in float32", CONNECTOR),
    ("xpu", "bf16-mixed"): Rule("ignored", "autocast is set up for cuda: trains in float32", CONNECTOR),
    ("xpu", "transformer-engine"): Rule("fails", "needs an NVIDIA GPU", ENGINE),
    ("tpu", "32-true"): Rule("differs", "matrix products take bfloat16 inputs by default", "torch_tpu 0.2.0"),
    ("tpu", "64-true"): Rule("fails", "XLAPrecision refuses it", XLA),
    ("tpu", "16-true"): Rule("differs", "matrix products round float16 to bfloat16", XLA),
    ("tpu", "bf16-true"): Rule("works", "", XLA),
    ("tpu", "16-mixed"): Rule("fails", "XLAPrecision refuses it; there are no loss scaler kernels", XLA),
    ("tpu", "bf16-mixed"): Rule("fails", "XLAPrecision refuses it: use bf16-true", XLA),
    ("tpu", "transformer-engine"): Rule("fails", "needs an NVIDIA GPU", ENGINE),
}


def rule(target: str, precision: str) -> Rule:
    """The rule for a target and a precision; ``xla`` is a TPU too."""
    precision = "transformer-engine" if precision.startswith("transformer-engine") else precision
    target = "tpu" if target == "xla" else target
    return TABLE.get((target, precision), Rule("unknown", "not in the table", ""))


def row(target: str, precision: str, torch_version: str) -> PrecisionRow:
    """The rule applied to a version of torch: what needs a later one fails."""
    found = rule(target, precision)
    needs = []
    outcome, reason = found.outcome, found.reason
    if found.torch > (0, 0):
        needs.append("torch >= {}.{}".format(*found.torch))
        if release(torch_version) < found.torch:
            outcome = "fails"
            reason = f"needs {needs[0]}, this is {torch_version.partition('+')[0]}"
    if found.macos:
        needs.append(f"macOS >= {found.macos}")
    return PrecisionRow(target, precision, outcome, reason, ", ".join(needs), found.source)


def rows(torch_version: str, targets: Iterable[str] = ACCELERATORS) -> tuple[PrecisionRow, ...]:
    """The whole table for a version of torch."""
    return tuple(row(target, precision, torch_version) for target in targets for precision in PRECISIONS)


def release(version: str) -> tuple[int, int]:
    """``(2, 13)`` for ``2.13.0+cpu``; ``(0, 0)`` for what is no version."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
