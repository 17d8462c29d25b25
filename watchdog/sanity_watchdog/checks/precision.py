"""Number formats: asked against got, and tensors that do not fit together."""

from ..alerts import Severity
from ..evidence.runtime import DtypeClash, Formats, NamedTensor, PrecisionUse, StepFormats
from .check import Findings, check

TRUE_FORMATS = {"16-true": "float16", "bf16-true": "bfloat16", "64-true": "float64"}
"""Number format of the weights where a precision stores them in it."""
MIXED_FORMATS = {"16-mixed": "float16", "bf16-mixed": "bfloat16"}
"""Number format that autocast has in force in the forward."""
ALIASES = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}
"""Lightning's short spellings."""


@check("WD401", "precision-fallback", Severity.WARNING, PrecisionUse)
def precision_fallback(seen: PrecisionUse) -> Findings:
    """The run uses another precision than the one asked for.

    **What it sees.** The ``precision`` given to the Trainer, the precision plugin that came of it, the device its
    autocast and loss scaler are made for, the weights' number format, and the autocast that was really in force when
    the modules of the first step were called.

    **Why it matters.** Nothing fails. ``16-mixed`` on a CPU silently becomes ``bf16-mixed`` without a loss scaler, so
    a smoke test says nothing about fp16 overflow; an accelerator given as an *instance* gets an autocast for CUDA,
    which does nothing elsewhere: the run is float32 at full cost.

    **How to fix.** Name the accelerator, and ask for a precision that it has::

        Trainer(accelerator=CPUAccelerator(), precision="bf16-mixed")   # before: trains in float32
        Trainer(accelerator="cpu", precision="bf16-mixed")              # after

    For an accelerator of your own: ``plugins=[MixedPrecision("bf16-mixed", device="xpu")]`` and no ``precision=``. For
    real fp16 with a loss scaler on a CPU: ``plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]``.

    **When to ignore.** In a CPU smoke test of a model that trains in fp16 elsewhere, once you know that fp16 is not
    what it tests.

    **Limits.** What autocast does is looked at in the first step only, and not where anything is compiled. TF32
    matrix products are a setting of yours and not reported.

    **Sources.** Lightning 2.6.6, ``accelerator_connector.py``, ``_check_and_init_precision``; measured for every
    precision on a CPU by name and by instance.
    """
    asked, used = (ALIASES.get(p, p) for p in (seen.asked, seen.used))
    wished = MIXED_FORMATS.get(used)
    numbers = {"asked": seen.asked, "used": seen.used, "accelerator": seen.accelerator}
    if asked != used:
        without = " without a loss scaler" if asked == "16-mixed" and seen.scaler == "none" else ""
        yield precision_fallback.alert(
            seen,
            f"asked for {asked}, running {used} on {seen.accelerator}{without}",
            hint=f'ask for precision="{used}", or run where {asked} exists: this run says nothing about it',
            evidence={**numbers, "scaler": seen.scaler},
        )
    elif wished and seen.autocast_device and seen.autocast_device != seen.accelerator:
        yield precision_fallback.alert(
            seen,
            f"{used} is set up for {seen.autocast_device} and does nothing on {seen.accelerator}: this run is float32",
            hint="give the accelerator by its name, or plugins=[MixedPrecision(…, device=…)] without precision=",
            evidence={**numbers, "autocast_device": seen.autocast_device, "scaler": seen.scaler},
        )
    elif wished and seen.forward and wished not in seen.forward:
        got = ", ".join(seen.forward)
        yield precision_fallback.alert(
            seen,
            f"asked for {used}, but autocast was {got} in every module of the first step",
            hint="look for torch.autocast(enabled=False) around the forward, or a device without this number format",
            evidence={**numbers, "autocast": got},
        )
    elif used in TRUE_FORMATS and seen.weights and TRUE_FORMATS[used] not in seen.weights:
        yield precision_fallback.alert(
            seen,
            f"asked for {used}, but every weight is {', '.join(seen.weights)}",
            hint="make the modules in __init__ or configure_model, where Lightning converts them",
            evidence={**numbers, "weights": ", ".join(seen.weights)},
        )
    elif seen.emulated:
        yield precision_fallback.alert(
            seen,
            "this device has no bfloat16 units and emulates the format",
            severity=Severity.INFO,
            hint='precision="16-mixed" is native here; it needs the loss scaler that Lightning adds',
            evidence=numbers,
        )


@check("WD402", "dtype-mismatch", Severity.ERROR, Formats, implied_by=("WD105", "WD103"))
def dtype_mismatch(seen: Formats) -> Findings:
    """An operation refused its tensors because their number formats differ.

    **What it sees.** The exception that ends the run, on its way out: the innermost module, the user's line, and the
    number formats of the tensors that were at hand there. In a first step that goes through, whether the loss became
    float64 although no weight is (INFO).

    **Why it matters.** The exception names two formats; which of your tensors has which is the actual question.
    Features from NumPy are float64 unless you say otherwise, while weights are float32. Autocast converts float16,
    bfloat16 and float32 into one another, but neither float64 nor integers.

    **How to fix.** Convert where the data are made::

        TensorDataset(torch.from_numpy(x), y)           # before: float64
        TensorDataset(torch.from_numpy(x).float(), y)   # after: float32

    **When to ignore.** Never: the run has ended.

    **Limits.** Only what the frames of the traceback still hold can be named. ``WD405`` judges float64 for devices
    that lack it.

    **Sources.** PyTorch forum, the most common dtype question; measured on torch 2.13: matrix products, convolutions,
    normalisation, recurrent layers and attention refuse, element-wise operations promote.
    """
    if isinstance(seen, StepFormats):
        wide = [t.name for t in seen.batch if t.dtype == "float64"]
        if seen.loss == "float64" and "float64" not in seen.weights:
            yield dtype_mismatch.alert(
                seen,
                f"the loss is float64 although the weights are {seen.weights[0]}"[:99],
                severity=Severity.INFO,
                hint=f"convert {', '.join(wide) or 'what is float64 in the step'} to {seen.weights[0]}",
                subjects=wide,
                evidence={"loss": seen.loss, "weights": ", ".join(seen.weights)},
            )
        return
    if not isinstance(seen, DtypeClash):
        return
    odd = _odd_one(seen)
    kinds = ", ".join(dict.fromkeys(t.dtype for t in seen.tensors if t.shape))
    if odd is None:
        message = f"formats that do not fit together: {seen.error}"[:99]
        hint = "compare the dtypes of the operands in that line"
    else:
        tensor, others = odd
        origin = next((b.name for b in seen.batch if b.dtype == tensor.dtype), "")
        as_well = f", as {origin} is," if origin and origin != tensor.name else ""
        message = f"{tensor.name} is {tensor.dtype}{as_well} where the weights are {others}"[:99]
        hint = f"convert it where it is made: {origin or tensor.name} to {others}, for data in the dataset"
    told = {"error": seen.error[:160], "dtypes": kinds, "module": seen.module}
    yield dtype_mismatch.alert(
        seen,
        message,
        hint=hint,
        subjects=tuple(s for s in (odd[0].name if odd else "", seen.module) if s),
        where=seen.where,
        evidence={k: v for k, v in told.items() if v},
    )


def _odd_one(seen: DtypeClash) -> tuple[NamedTensor, str] | None:
    """The tensor that does not fit the weights, and the weights' format; the batch's go first, and float64."""
    weights = [t for t in seen.tensors if t.role == "registered"]
    if not weights:
        return None
    common = weights[0].dtype
    others = [t for t in seen.tensors if t.dtype != common and t.role != "registered"]
    others += [t for t in weights if t.dtype != common]
    others.sort(key=lambda t: ("float" not in t.dtype, t.role != "batch", t.dtype != "float64"))
    return (others[0], common) if others else None
