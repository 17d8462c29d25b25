"""The loss scaler: stuck, missing, misplaced, or used after clipping."""

import math

from ..alerts import Severity, Value
from ..evidence.scaler import Clipped, ClippedNorms, ScaledClip, ScalerHistory, ScalerSetup
from .check import Findings, Skip, check

STUCK_SHARE = 0.25
"""Skipped share of the latest attempts. Healthy: one skip in 2,000, none among the first eight counted."""
FEWEST = 12
"""Attempts that must lie in the window."""
NEVER_GROWS = 3
"""Growth intervals without a change of the scale."""
SPARE_STEPS = 8
"""Steps that a schedule may gain on its optimizer after the scaler has settled; plus two per growth interval."""
STEADY = 1.005
"""Largest over smallest product of norm and loss scale that still counts as one number (float16 rounds at 0.1 %)."""
SMALL_NORM = 2e-3
"""Gradient norm that nobody clips to on purpose before a scale of 16 and more."""
CLIPS = (1e-2, 100.0)
"""Range of the clip values that people use."""
SAMPLES = 4
"""Norms that must agree."""


@check("WD203", "stuck-scaler", Severity.ERROR, ScalerHistory, implied_by=("WD142", "WD202"))
def stuck_scaler(seen: ScalerHistory, *, skipped_share: float = STUCK_SHARE) -> Findings:
    """The loss scaler keeps skipping steps, or its scale has collapsed.

    **What it sees.** Optimizer steps that were attempted and did not happen, counted without reading the device (fused
    optimizers: from their own step counter), and the scale with each sample. The first eight attempts are not counted.

    **Why it matters.** A skipped step trains nothing. While the scale is searched for, and once in a growth interval,
    that is how dynamic scaling works; as a habit it wastes the run, or hides a gradient that is never finite. Schedules
    step all the same, so the learning rate decays on steps that never happened.

    **How to fix.** A scale below 1 means that the gradient overflows by itself: look for a division by almost zero.
    Regular skips mean that the scale grows too fast.

    ```python
    GradScaler(init_scale=2.0**17, growth_interval=1)      # before
    GradScaler(init_scale=2.0**14, growth_interval=2000)   # after
    ```

    **When to ignore.** In tests that provoke overflows.

    **Limits.** With several fused optimizers only the scale is judged.

    **Sources.** ``torch.amp.GradScaler``; measured: from 2^24 seven skips within eight steps, then one per interval.
    """
    if not seen.attempts:
        yield Skip("no step under a loss scaler")
        return
    interval = seen.growth_interval
    evidence = {
        "skipped": seen.skipped,
        "attempts": seen.attempts,
        "loss_scale": seen.scale,
        "start_scale": seen.start_scale,
        "growth_interval": interval,
    }
    if 0 <= seen.scale < 1 and seen.scale < seen.start_scale:
        yield stuck_scaler.alert(
            seen,
            f"the loss scale collapsed from {seen.start_scale:g} to {seen.scale:.3g} (limit 1)",
            hint="the gradient overflows at any scale: look for a division by almost zero, keep that part in float32",
            evidence=evidence,
        )
    elif seen.window >= FEWEST and seen.window_skipped >= skipped_share * seen.window:
        yield stuck_scaler.alert(
            seen,
            f"{seen.window_skipped} of the last {seen.window} steps were skipped (limit {skipped_share:.0%})",
            hint=f"raise the scaler's growth_interval (now {interval}), or find out what overflows",
            evidence=evidence,
        )
    elif seen.schedules_ahead > SPARE_STEPS + 2 * seen.attempts / max(interval, 1):
        yield stuck_scaler.alert(
            seen,
            f"a schedule has gained {seen.schedules_ahead} steps on its optimizer, which skips them",
            hint="step the schedule only when the scaler did not skip: compare its scale before and after update()",
            severity=Severity.WARNING,
            evidence={**evidence, "ahead": seen.schedules_ahead},
        )
    elif seen.constant and not seen.skipped and seen.attempts > NEVER_GROWS * interval:
        yield stuck_scaler.alert(
            seen,
            f"the loss scale stayed at {seen.scale:g} for {seen.attempts} steps (growth interval {interval})",
            hint="call scaler.update() after each step",
            severity=Severity.INFO,
            evidence=evidence,
        )


@check("WD206", "clipped-before-unscaling", Severity.ERROR, Clipped)
def clipped_before_unscaling(seen: Clipped) -> Findings:
    """Gradients are clipped while they are still multiplied by the loss scale.

    **What it sees.** The norm of the gradient before the step, and the loss scale. Where the norm times the scale is
    one number in four samples, the clip value was applied to scaled gradients. While the scale stands still a
    deliberate clip to a tiny value looks the same in manual optimisation: a warning then, that says "probably". And
    calls of ``clip_grad_norm_`` in the step, to a value that is not multiplied by the scale, before the scaler, the
    module's own or the Trainer's, unscales the same gradients: a certainty.

    **Why it matters.** The gradient ends up at the clip value divided by the loss scale, 0.00001 instead of 0.5.
    Nothing fails and nothing is learnt.

    **How to fix.** Clip where the gradients have been unscaled: in ``on_before_optimizer_step``, which Lightning calls
    from ``opt.step()`` in manual optimisation as well. With a scaler of your own call ``scaler.unscale_`` first.

    ```python
    self.manual_backward(loss)                          # before
    self.clip_gradients(opt, gradient_clip_val=0.5)
    opt.step()

    def on_before_optimizer_step(self, optimizer):      # after; training_step only calls opt.step()
        torch.nn.utils.clip_grad_norm_(self.parameters(), 0.5)
    ```

    **When to ignore.** If you do clip to a norm below 0.002 in manual optimisation.

    **Limits.** Only clipping by norm is seen, and only where it bites in every sample.

    **Sources.** PyTorch's automatic mixed precision examples, "Working with unscaled gradients".
    """
    if isinstance(seen, ScaledClip):
        if seen.norm > seen.clip and seen.clip < SMALL_NORM * seen.scale:
            left = seen.clip / seen.scale
            yield clipped_before_unscaling.alert(
                seen,
                f"clipped to {seen.clip:.3g} while scaled by {seen.scale:g}: the norm becomes {left:.1e}",
                hint="call scaler.unscale_(optimizer) before it, or clip in on_before_optimizer_step: unscaled there",
                where=seen.where,
                evidence={"clip": seen.clip, "scaled_norm": seen.norm, "loss_scale": seen.scale},
            )
        return
    if not isinstance(seen, ClippedNorms):
        return
    pairs = [(n, n * s) for n, s in zip(seen.norms, seen.scales, strict=True) if math.isfinite(n) and n > 0]
    if len(pairs) < SAMPLES:
        yield Skip(f"fewer than {SAMPLES} finite gradients under a loss scaler")
        return
    clips = [clip for _, clip in pairs]
    steady = max(clips) <= STEADY * min(clips) and CLIPS[0] <= clips[-1] <= CLIPS[1]
    if steady and min(seen.scales) >= 16 and max(n for n, _ in pairs) < SMALL_NORM:
        certain = len(set(seen.scales)) > 1 or not seen.manual
        what = "clipped" if certain else "probably clipped"
        yield clipped_before_unscaling.alert(
            seen,
            f"{what} to {clips[-1]:.3g} while scaled: the norm is {seen.norms[-1]:.1e}",
            hint="clip in on_before_optimizer_step: unscaled there (own scaler: after scaler.unscale_)",
            severity=Severity.ERROR if certain else Severity.WARNING,
            evidence={"norm": seen.norms[-1], "loss_scale": seen.scales[-1], "clip": clips[-1], "samples": len(pairs)},
        )


@check("WD207", "missing-scaler", Severity.ERROR, ScalerSetup)
def missing_scaler(seen: ScalerSetup) -> Findings:
    """float16 without a loss scaler, or a loss scaler on float16 weights.

    **What it sees.** At the start: the precision plugin's format, the format of the weights, and the scaler.

    **Why it matters.** A scaler refuses to unscale gradients of float16 weights: the first step raises. Without a
    scaler small float16 gradients are rounded to zero; whether that happens is measured, so this is only a note.

    **How to fix.** Keep the weights in float32 and let autocast compute in float16.

    ```python
    Trainer(precision="16-mixed").fit(model.half())   # before: "Attempting to unscale FP16 gradients"
    Trainer(precision="16-mixed").fit(model)          # after
    ```

    **When to ignore.** The note, where gradients are large enough by design.

    **Limits.** A scaler that the module keeps in another object is not found.

    **Sources.** ``torch.amp.GradScaler.unscale_``; Micikevicius et al., 2018.
    """
    half = len(seen.half_weights)
    evidence: dict[str, Value] = {"float16_weights": half, "trainable": seen.trainable, "scaler": seen.scaler}
    if half and seen.scaler == "live":
        yield missing_scaler.alert(
            seen,
            f"{half} of {seen.trainable} trainable tensors are float16: the loss scaler will refuse their gradients",
            hint="keep the weights in float32 (model.float()); autocast computes in float16",
            subjects=seen.half_weights,
            evidence=evidence,
        )
    elif (half or seen.autocast_half) and seen.scaler != "live":
        what = "float16 weights" if half else "float16 autocast"
        yield missing_scaler.alert(
            seen,
            f"{what} with {'a disabled' if seen.scaler == 'disabled' else 'no'} loss scaler",
            hint='precision="16-mixed" with its own scaler, where gradients are lost',
            severity=Severity.INFO,
            evidence=evidence,
        )
