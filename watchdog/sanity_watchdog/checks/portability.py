"""What a step needs, and what the accelerators meant have."""

from collections import defaultdict
from collections.abc import Iterable

from ..alerts import Severity
from ..evidence.portability import OperatorGap, Operators, PrecisionOnTargets, WideTensors
from .check import Check, Findings, Skip, check


@check("WD405", "float64-on-target", Severity.ERROR, WideTensors, implied_by=("WD408",))
def float64_on_target(seen: WideTensors) -> Findings:
    """A float64 or complex128 tensor has to go to a device that has no such format.

    **What it sees.** With a target without float64 (MPS): parameters, buffers and tensors of the first batch in such a
    format (ERROR: moving them fails), and operators of the first training and validation step that make one (WARNING:
    the step may keep it on the CPU on purpose).

    **Why it matters.** On the CPU the run is fine, perhaps because the step converts the values itself. On MPS the
    transfer of the batch already fails, before the step can convert anything.

    **How to fix.** Convert where the data are made, not in the step::

        TensorDataset(x, torch.from_numpy(y))           # before: float64 targets
        TensorDataset(x, torch.from_numpy(y).float())   # after

    **When to ignore.** For tensors that the step makes on the CPU on purpose and keeps there.

    **Limits.** Only the first batch of training and validation is looked at. Single numbers are left out: they may
    stay on the CPU. Formats inside compiled code are not seen.

    **Sources.** pytorch#122602: "the MPS framework doesn't support float64", closed as expected behaviour.
    """
    aims = ", ".join(seen.targets)
    if seen.held:
        yield float64_on_target.alert(
            seen,
            f"{len(seen.held)} float64 {'tensor' if len(seen.held) == 1 else 'tensors'} to move to {aims}, "
            "which has no float64",
            hint=f"convert {seen.held[0]} to float32 where it is made, before it is moved",
            subjects=seen.held,
            evidence={"targets": aims, "tensors": len(seen.held)},
        )
    by_line = defaultdict(list)
    for call in seen.calls:
        by_line[call.where].append(call)
    for where, calls in () if seen.held else by_line.items():
        yield float64_on_target.alert(
            seen,
            f"{calls[0].name} makes a float64 tensor in the step; {aims} has no float64"[:99],
            severity=Severity.WARNING,
            hint="give it dtype=torch.float32, or keep it on the CPU on purpose: device='cpu'",
            subjects=dict.fromkeys(c.module or c.name for c in calls),
            where=where,
            evidence={"targets": aims, "operators": ", ".join(dict.fromkeys(c.name for c in calls))},
        )


@check("WD406", "missing-operator", Severity.ERROR, Operators)
def missing_operator(seen: Operators) -> Findings:
    """The step calls an operator that a target has no kernel for.

    **What it sees.** Every aten operator that the first training step (forward and backward) and the first validation
    batch really dispatched to, with module and line, looked up in the target's list of kernels: the dispatcher where
    this torch was built for the target, else the ``native_functions.yaml`` inside the installed torch, for TPUs the
    registrations of an installed torch_tpu (asked in a child process).

    **Why it matters.** The step raises ``NotImplementedError`` on the target. Some operators are called in validation
    only: ``nn.TransformerEncoder`` with a padding mask trains on MPS and fails at the first validation.

    **How to fix.** As the alert says where a way out is known; else replace the call, or compute that part on the CPU:
    ``torch.linalg.eigh(x.cpu())``. For the padded encoder::

        nn.TransformerEncoder(layer, 2)                               # before
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)   # after

    **When to ignore.** When the target runs a newer torch that has the operator.

    **Limits.** Judged for the torch named in the alert: another one on the target may differ. What the target would
    call instead of the CPU's own choices is not seen, nor the inside of other libraries' operators, of compiled code
    and of the optimizer. A kernel that exists may still refuse a number format.

    **Sources.** ``native_functions.yaml`` compared with the symbols of the macOS wheels: no difference in 2.6 and
    2.13; pytorch#77764 and #141287 for the encoder.
    """
    yield from _unjudged(seen)
    gone = [g for g in seen.gaps if g.missing and not (seen.fallback and g.target == "mps")]
    yield from _gaps(missing_operator, seen, gone, "no kernel", "replace the call, or compute that part on the CPU")


@check("WD407", "operator-falls-back", Severity.WARNING, Operators)
def operator_falls_back(seen: Operators) -> Findings:
    """The step calls an operator that a target silently computes on the CPU.

    **What it sees.** The same operators as ``WD406``: those that MPS has registered as a round trip through the CPU,
    and missing ones where ``PYTORCH_ENABLE_MPS_FALLBACK`` turns the error into such a round trip.

    **Why it matters.** Each call waits for the device, copies to the CPU, computes there and copies back. The result
    is right; the step may be many times slower, with one warning at most.

    **How to fix.** As the alert says where a way out is known; else replace the call. For padded encoders
    ``enable_nested_tensor=False``.

    **When to ignore.** When the call is rare or small.

    **Limits.** As ``WD406``. How slow it is cannot be said from here.

    **Sources.** ATen/mps/MPSFallback.mm; PyTorch documentation, MPS environment variables.
    """
    yield from _unjudged(seen)
    slow = [g for g in seen.gaps if not g.missing or (seen.fallback and g.target == "mps")]
    yield from _gaps(
        operator_falls_back, seen, slow, "no kernel but a CPU round trip", "replace the call, or call it once per batch"
    )


def _unjudged(seen: Operators) -> Findings:
    reasons = [f"{target}: {reason}" for target, reason in seen.unjudged]
    reasons += [f"no table knows {', '.join(seen.foreign)}"] if seen.foreign else []
    if reasons:
        judged = ", ".join(target for target, _ in seen.targets)
        yield Skip("; ".join(reasons) + (f"; judged for {judged}" if judged else ""))


def _gaps(found: Check[Operators], seen: Operators, gaps: Iterable[OperatorGap], what: str, hint: str) -> Findings:
    by_line: dict[str, list[OperatorGap]] = defaultdict(list)
    for gap in gaps:
        by_line[gap.call.where].append(gap)
    for where, here in by_line.items():
        names = list(dict.fromkeys(g.call.name for g in here))
        aims = ", ".join(dict.fromkeys(g.target for g in here))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        module = next((g.call.module for g in here if g.call.module), "")
        yield found.alert(
            seen,
            f"{names[0]}{more}: {what} on {aims} ({here[0].source})"[:99],
            hint=next((g.way_out for g in here if g.way_out), hint),
            subjects=names,
            where=where,
            evidence={
                "targets": aims,
                "judged_by": "; ".join(dict.fromkeys(g.source for g in here)),
                "phase": ", ".join(dict.fromkeys(g.call.phase for g in here)),
                "calls": sum(g.call.calls for g in here),
                **({"module": module} if module else {}),
            },
        )


@check("WD408", "unsupported-precision", Severity.ERROR, PrecisionOnTargets)
def unsupported_precision(seen: PrecisionOnTargets) -> Findings:
    """A target cannot run the precision that was asked for, or runs another one.

    **What it sees.** The ``precision`` asked of the Trainer, looked up in a table of accelerators and precisions
    (``sanity-watchdog precision`` prints it) for every target and the installed torch.

    **Why it matters.** Some pairs fail at once (64-true on MPS), some need a later torch or macOS, and some are
    silently not what was asked: mixed precision by an accelerator of one's own trains in float32.

    **How to fix.** Ask for what the target has: float32 or bf16-mixed on MPS, bf16-true on TPUs::

        Trainer(accelerator="mps", precision="64-true")       # before
        Trainer(accelerator="mps", precision="bf16-mixed")    # after

    **When to ignore.** When the target is run with another precision than this run.

    **Limits.** A table, not a measurement on the target; each row names its source. The version of macOS on the
    target is not known here: what needs one is worth knowing only.

    **Sources.** Each row's own; Lightning 2.6.6, ``accelerator_connector.py``.
    """
    for row in seen.rows:
        severity = {"fails": Severity.ERROR, "ignored": Severity.WARNING, "differs": Severity.INFO}.get(row.outcome)
        if row.outcome == "works" and "macOS" in row.needs:
            severity = Severity.INFO
        if severity is None:
            continue
        told = {"target": row.target, "precision": row.precision, "needs": row.needs, "source": row.source}
        verdict = {"fails": "fails", "ignored": "is silently not applied", "differs": "means other numbers"}
        what = verdict.get(row.outcome, f"needs {row.needs}")
        yield unsupported_precision.alert(
            seen,
            f"{row.precision} {what} on {row.target}" + (f": {row.reason}" if row.outcome != "works" else ""),
            severity=severity,
            hint="choose a precision of that row in the table: sanity-watchdog precision",
            subjects=(row.target,),
            where="",
            evidence={k: v for k, v in told.items() if v},
        )
