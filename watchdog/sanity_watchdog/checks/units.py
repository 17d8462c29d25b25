"""Units that never fire, or never leave the flat ends of their activation."""

import math

from ..alerts import Severity, Value
from ..evidence.units import SaturatedUnits, SilentLayer, SilentUnits
from .check import Findings, Skip, check

SILENT_SHARE = 0.5
"""Silent share of a layer's units that chance alone can reach: where inputs are small beside the biases, as behind a
few layers of the default initialisation, the sign of its bias decides whether a unit always fires or never."""
DEVIATIONS = 3.0
"""Standard deviations of that share, for a layer of so many units, above which it is no chance."""
UNDERFLOW = 2.0**-116
"""Gradients of a layer near the smallest of float32, 2^-126: others may have become zero by shrinking further. A dead
layer stops gradients at once, whatever their size."""
BARE = "what it computes does not reach the loss: look behind it for a wrong axis, a mask or a factor of zero"
SILENCED = "start biases at zero, scale the inputs, lower the first learning rates, or use LeakyReLU or GELU"
WHOLLY = "; or is there a mask or a factor of zero behind it?"
"""Hints where no activation lies behind a layer, where one does, and what is added where all units are silent."""
FLAT_SHARE = 0.7
"""Share of a bounded activation's outputs at its flat ends. Unit inputs: default initialisation below 0.1, standard
normal weights of 64 inputs 0.77."""


@check(
    "WD214",
    "dead-units",
    Severity.WARNING,
    SilentUnits,
    implied_by=("WD114", "WD122", "WD123", "WD142", "WD201", "WD217", "WD302", "WD505"),
)
def dead_units(seen: SilentUnits, *, share: float = SILENT_SHARE) -> Findings:
    """Units of a layer never fire, so they never learn.

    **What it sees.** Elements of a bias whose gradient is exactly zero: those units were silent on the whole batch.
    Kept over six samples; what fired once is alive. Then the weights of these units must have no gradient either,
    since some biases have none in good health (their effect cancels). The last layer is left out. Half of a layer may
    be silent by chance; the limit lies three standard deviations of such a draw above that (69 % of 64 units). Where no
    activation lies between a layer and the loss, some outputs may be masked or not chosen; there all must be silent.
    Where no parameter of the optimizer has a gradient, the cause lies behind the last layer, and no ReLU is accused;
    not judged where the loss is 0 because the last layer and all targets so far are. Whole layers are only noted where
    the step asks for its number or the epoch's: what they compute may count later.

    **Why it matters.** A ReLU unit that is never positive gets no gradient and cannot come back. The network is smaller
    than it looks; if a whole layer is dead nothing before it learns.

    **How to fix.** Look at the biases, at the scale of the inputs and at the learning rate of the first steps.

    ```python
    nn.init.constant_(layer.bias, -8.0)   # before
    nn.init.zeros_(layer.bias)            # after; or LeakyReLU, GELU
    ```

    **When to ignore.** In architectures that are sparse by design.

    **Limits.** Layers without a bias are seen only through the norm layer behind them. Unused experts look dead. Not
    judged where gradients shrink from layer to layer until float32 cannot hold them (``vanishing-gradients``).

    **Sources.** Lu et al., Dying ReLU and Initialization, 2019; zero shares of bias gradients and of activations agreed
    exactly in every measured network.
    """
    if seen.faintest < UNDERFLOW:
        yield Skip("gradients shrink until float32 cannot hold them")
        return
    if seen.largest == seen.loss == seen.head == 0:
        yield Skip("the last layer is zero, and so are all targets so far")
        return
    layers = [layer for layer in seen.layers if layer.share >= _limit(layer, share)]
    if layers:
        worst = max(layers, key=lambda layer: (not layer.bare, layer.share))
        evidence: dict[str, Value] = {
            "silent": sum(layer.silent for layer in layers),
            "units": sum(layer.units for layer in layers),
            "layers": len(layers),
            "measured": seen.measured,
            "samples": seen.samples,
        }
        if seen.largest == 0:
            message = f"no parameter got a gradient: all units of {worst.name} in {seen.samples} samples"[:99]
            hint, evidence = _without_any(seen), evidence | {"loss": seen.loss}
        else:
            message = f"{worst.silent} of {worst.units} units of {worst.name} got no gradient in {seen.samples} samples"
            message = message[:80] + f" (limit {_limit(worst, share):.0%})"
            hint = BARE if worst.bare else SILENCED + (WHOLLY if worst.silent == worst.units else "")
        names = [layer.name for layer in layers] if seen.largest != 0 else []
        waits = seen.waits and all(layer.share == 1 for layer in layers)
        severity = Severity.INFO if waits else None
        yield dead_units.alert(seen, message, hint=hint, subjects=names, evidence=evidence, severity=severity)


def _without_any(seen: SilentUnits) -> str:
    """Where to look if even the last layer has no gradient: no activation before it can be why."""
    if seen.loss == 0:
        return (
            "the loss is exactly 0: look for samples compared with themselves, a factor of zero, targets made of scores"
        )
    return (
        "look behind the last layer: a softmax over one output, a factor of zero, argmax, rounding or a detour by NumPy"
    )


def _limit(layer: SilentLayer, share: float) -> float:
    return 1.0 if layer.bare else min(1.0, share + DEVIATIONS * math.sqrt(share * (1 - share) / layer.units))


@check("WD215", "saturated-units", Severity.WARNING, SaturatedUnits, implied_by=("WD122", "WD123"))
def saturated_units(seen: SaturatedUnits, *, share: float = FLAT_SHARE) -> Findings:
    """A bounded activation starts at its flat ends, where gradients vanish.

    **What it sees.** Outputs of Tanh, Sigmoid and their like, and of ``torch.tanh``, in the first training step: the
    share within 1 % of either end. The last module, unless weights follow it in a sequence, and the last line of these
    may make the output and are left out.

    **Why it matters.** The slope there is below 4 % of its largest: layers before it hardly learn.

    **How to fix.** Scale the inputs to about unit variance, or the weights down.

    ```python
    x = pixels.float()             # before: tanh of numbers up to 255
    x = pixels.float() / 255       # after
    ```

    **When to ignore.** Gates that are meant to start open or closed.

    **Limits.** The first step only. ``torch.sigmoid``, mostly a gate, and recurrent layers are not seen.

    **Sources.** Glorot and Bengio 2010; SageMaker Debugger's rule for tanh.
    """
    flat = [layer for layer in seen.layers if not layer[2] < share]
    if flat:
        name, kind, worst = flat[0]
        yield saturated_units.alert(
            seen,
            f"{worst:.0%} of the outputs of {name} ({kind}) are at its flat ends (limit {share:.0%})"[:99],
            hint="scale the inputs to about unit variance, or start with smaller weights",
            subjects=(layer[0] for layer in flat),
            evidence={"share": worst, "layers": len(flat), "measured": len(seen.layers)},
        )
