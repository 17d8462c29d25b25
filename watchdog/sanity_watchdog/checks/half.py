"""Gradients and activations that leave float16's range, at either end."""

import math

from ..alerts import Severity, Value
from ..evidence.half import CONFIRM, LAYER_SHARE, RUN_SHARE, HalfGradients, HalfRange
from .check import Findings, Skip, check

ERROR_SHARE = 0.5
"""Lost share of all elements from which nobody can call the gradient right."""
SMALL_SCALE = 1.0
"""Loss scale at and below which an overflow is the run's own and not the scaler's search for a scale."""
NAMED = 12
"""Parameters named as subjects of one alert."""


def instead(native_bf16: bool, otherwise: str) -> str:
    """``otherwise``, with bfloat16 offered where the device has it."""
    return f'{otherwise}, or precision="bf16-mixed", which this device has natively' if native_bf16 else otherwise


def power(value: float) -> str:
    """A power of two as text."""
    return f"2^{value:.1f}" if math.isfinite(value) else "0"


@check("WD201", "fp16-underflow", Severity.WARNING, HalfGradients, implied_by=("WD202",))
def fp16_underflow(seen: HalfGradients, *, run_share: float = RUN_SHARE, layer_share: float = LAYER_SHARE) -> Findings:
    """Gradients are rounded to zero because float16 cannot hold them.

    **What it sees.** Gradients right after backward, still multiplied by the loss scale, micro-batch by micro-batch.
    Whatever passed through a float16 kernel is a multiple of 2^-24, in whatever format it is stored afterwards. How
    many elements are 1, 2 and 3 such units tells how many were rounded to 0; that is an estimate, and its median over
    three micro-batches is judged. Zeros of ReLU units and unused embedding rows are not counted.

    **Why it matters.** Nothing is reported: the gradient is 0 and the parameter stands still. What is lost is small,
    so the harm is less than the share: plain SGD hardly notices 10 %, Adam divides by the magnitude and does. From
    half of all elements on the gradient is wrong, and the alert an error.

    **How to fix.** Scale the loss, or train in bfloat16 where the device has it.

    ```python
    Trainer(plugins=MixedPrecision("16-mixed", "cuda", GradScaler(enabled=False)))   # before
    Trainer(precision="16-mixed")                                                    # after: a live loss scaler
    ```

    **When to ignore.** When a part of the loss is meant to be negligible.

    **Limits.** Values lost further up, in gradients of activations, show only through what is left of them. A tensor
    with two populations (query and value rows) hides its loss: 26 % true, 2 % seen. In a nearly dead network natural
    zeros count as lost. Alarm at 10 %: 41 of 45 runs that lost more were found, none of 218 that lost under 1 %
    accused; mean error of the share 0.017.

    **Sources.** Micikevicius et al., Mixed Precision Training, 2018; measured against the same batches in float32.
    """
    if len(seen.shares) < CONFIRM:
        yield Skip(f"fewer than {CONFIRM} finite float16 gradients")
        return
    lost = tuple(x for x in seen.layers if x.share >= layer_share and x in seen.lost)
    worst = lost[0] if lost else seen.layers[0] if seen.layers else None
    if seen.share < run_share and not lost:
        return
    scale = f"loss scale {seen.scale:g}" if seen.scaled else "no loss scaler"
    if seen.silent:
        met = "lost, or the loss is met" if seen.ever else "lost, or there never was one"
        message = f"every gradient is exactly zero in float16 with {scale}: {met}"
    elif seen.share >= run_share:
        message = f"about {seen.share:.0%} of gradient elements are lost to float16 (limit {run_share:.0%}; {scale})"
    else:
        share = max(x.share for x in lost)
        some = f"{len(lost)} of {seen.measured} tensors"
        message = f"{some} lose up to {share:.0%} of their gradient to float16 (limit {layer_share:.0%})"
    evidence: dict[str, Value] = {
        "lost_share": seen.share,
        "loss_scale": seen.scale if seen.scaled else None,
        "measured": seen.measured,
    }
    if worst is not None:
        evidence |= {
            "worst_share": worst.share,
            "worst_error": worst.error,
            "worst_zeros": worst.zeros,
            "worst_largest": power(worst.largest),
        }
    if seen.scaled:
        fix = "keep small parts of the loss out of float16 and let the loss scale grow"
    else:
        fix = 'multiply the loss by a scale: precision="16-mixed" with its GradScaler enabled'
    named = tuple(x for x in seen.layers if x.share >= (layer_share if lost else run_share))
    yield fp16_underflow.alert(
        seen,
        message,
        hint=instead(seen.native_bf16, fix),
        subjects=(x.name for x in named),
        severity=Severity.ERROR if seen.share >= ERROR_SHARE and not (seen.silent and seen.ever) else Severity.WARNING,
        evidence=evidence,
    )


@check("WD202", "fp16-overflow", Severity.ERROR, HalfRange)
def fp16_overflow(seen: HalfRange) -> Findings:
    """Gradients or activations exceed 65504, the largest number of float16.

    **What it sees.** The largest gradient right after backward, still scaled, and at the first step (later only while
    gradients overflow) the float16 output of every module. A gradient that overflows under a loss scale above 1 is the
    scaler's search for a scale and no alert; without a scaler, or at a scale of 1 and less, it is.

    **Why it matters.** An infinity becomes NaN in the next operation, and in the weights at the next step.

    **How to fix.** The alert names the first parameter, or the first module: keep that part in float32, or look for a
    division by almost zero there.

    ```python
    h = F.normalize(self.net(x), eps=1e-12)                       # before: gradients of the order 1e12
    with torch.autocast(x.device.type, enabled=False):            # after
        h = F.normalize(self.net(x).float(), eps=1e-3)
    ```

    **When to ignore.** Never without a scaler. Masks of -inf are not counted.

    **Limits.** A gradient that is NaN without any infinity is no overflow: see WD211. Activations of compiled
    modules, and of functions called outside of modules, are not seen one by one.

    **Sources.** IEEE 754 binary16; PyTorch's notes on automatic mixed precision.
    """
    if seen.module:
        yield fp16_overflow.alert(
            seen,
            f"the output of {seen.module} ({seen.kind}) is infinite in float16 (limit 65504)"[:99],
            hint=instead(seen.native_bf16, "scale its input or weights down, or run that module in float32"),
            subjects=(seen.module,),
            evidence={"tightest": seen.tightest, "activation_headroom": seen.activation_headroom},
        )
    if seen.infinite and not (seen.scaled and seen.scale > SMALL_SCALE):
        scale = f"loss scale {seen.scale:.3g}" if seen.scaled else "no loss scaler"
        yield fp16_overflow.alert(
            seen,
            f"{len(seen.bad)} float16 gradients overflow with {scale} (limit 65504), first {seen.bad[0]}"[:99],
            hint=instead(
                seen.native_bf16,
                f"look for a division by almost zero between {seen.bad[0]} and the loss; keep that part in float32",
            ),
            subjects=seen.bad[:NAMED],
            evidence={
                "bad": len(seen.bad),
                "loss_scale": seen.scale if seen.scaled else None,
                "headroom": seen.headroom,
            },
        )
