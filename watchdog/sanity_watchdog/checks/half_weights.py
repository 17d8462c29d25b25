"""Weights stored in half precision: updates and constants that round away."""

from ..alerts import Severity
from ..evidence.half import median
from ..evidence.half_weights import LostUpdates
from ..evidence.scaler import TinyConstant
from .check import Findings, Skip, check

LOST_SHARE = 0.72
"""Share of the movement that rounds away. Healthy runs: 0.04 to 0.70; runs that learnt at most 0.59 of what float32
learnt: 0.75 and more."""
ALL = 0.999
"""From here on nothing moves at all."""
SAMPLES = 3
"""Samples after the first step."""


@check("WD204", "lost-updates", Severity.WARNING, LostUpdates, implied_by=("WD142", "WD201", "WD205", "WD211", "WD501"))
def lost_updates(seen: LostUpdates, *, share: float = LOST_SHARE) -> Findings:
    """Updates are smaller than the spacing of half-precision weights and round away.

    **What it sees.** A sample of every half-precision parameter before and after one optimizer step: elements with a
    gradient whose value is bit for bit what it was. Pooled over all parameters; weighted by the gradient for plain SGD,
    counted for adaptive methods, which push every element about equally hard.

    **Why it matters.** bfloat16 has 8 significant bits, float16 has 11: an update below 1/512 or 1/4096 of the weight
    leaves it where it was, however many steps follow. Runs above the limit gained 19 to 59 % of what the same run
    gained in float32.

    **How to fix.** Keep float32 weights and compute in half precision.

    ```python
    Trainer(precision="bf16-true")    # before
    Trainer(precision="bf16-mixed")   # after; or a larger rate, or an optimizer with stochastic rounding
    ```

    **When to ignore.** With an optimizer that keeps float32 copies of its own and writes them back rounded.

    **Limits.** Norm weights at 1 stand still in every such run at rates below 0.002; single parameters are not judged.
    Momentum moves elements without a gradient; steps at rate 0 are left out.

    **Sources.** Zamirai et al., Revisiting BFloat16 Training, 2020; measured on MLP, CNN, encoder and GPT.
    """
    later = seen.shares[1:]
    if len(later) < SAMPLES:
        yield Skip(f"fewer than {SAMPLES + 1} sampled steps of half-precision weights")
        return
    lost = median(later)
    if not lost < share:
        what = "no sampled weight moves" if lost >= ALL else f"{lost:.0%} of the movement rounds away"
        mixed = "bf16-mixed" if seen.dtype == "bfloat16" or seen.native_bf16 else "16-mixed"
        yield lost_updates.alert(
            seen,
            f"{what} in {seen.dtype} weights at learning rate {seen.rate:.3g} (limit {share:.0%})",
            hint=f'keep float32 weights: precision="{mixed}", or use a larger learning rate',
            evidence={
                "lost_share": lost,
                "samples": len(later),
                "tensors": seen.tensors,
                "rate": seen.rate,
                "most_lost": ", ".join(seen.parameters[:3]),
            },
        )


@check("WD205", "vanishing-constant", Severity.ERROR, TinyConstant)
def vanishing_constant(seen: TinyConstant) -> Findings:
    """An optimizer's eps is zero in the format of its parameters.

    **What it sees.** At the start: ``eps`` of every parameter group beside the format of its parameters. Below half of
    the smallest number the constant rounds to zero.

    **Why it matters.** Adam divides by the root of the squared gradient plus eps. In float16 the square of a gradient
    below 0.008 is zero too, and 0/0 is NaN: usually in the very first step.

    **How to fix.**

    ```python
    torch.optim.Adam(self.parameters(), lr=1e-3)             # before: eps=1e-8 under precision="16-true"
    torch.optim.Adam(self.parameters(), lr=1e-3, eps=1e-4)   # after; better: precision="16-mixed", float32 weights
    ```

    **When to ignore.** With an optimizer that computes in float32 whatever its parameters are.

    **Limits.** Constants inside the model are seen only by what they lead to (WD142, WD211). Fused optimizers compute
    in float32 and are left out.

    **Sources.** IEEE 754 binary16: smallest subnormal 2^-24 = 5.96e-8.
    """
    if not seen.value > seen.smallest / 2:
        yield vanishing_constant.alert(
            seen,
            f"{seen.name}={seen.value:g} of {seen.optimizer} is zero in {seen.dtype} (smallest {seen.smallest:.2g})",
            hint=f"use {seen.name}=1e-4, or keep float32 weights (mixed precision)",
            subjects=seen.parameters,
            evidence={seen.name: seen.value, "smallest": seen.smallest, "dtype": seen.dtype},
        )
