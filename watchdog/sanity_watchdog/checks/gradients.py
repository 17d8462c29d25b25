"""Gradients that are not finite, vanish along the depth, or explode."""

import math

from ..alerts import Severity
from ..evidence.gradients import BadGradients, DepthProfile, GradientSizes
from .causes import made_by
from .check import Findings, Skip, check

NAMED = 12
"""Parameters named as subjects of one alert."""
OCTAVES_PER_LAYER = 0.7
"""Healthy runs: -0.1 to 0.9 octaves a layer, but then over few layers."""
OCTAVES = 13.0
"""Octaves over the whole depth. Healthy runs: at most 7; twelve sigmoid layers: 34; four, which learn slowly: 11."""
GONE = 20.0
"""Octaves over the whole depth, a factor of a million, that are certain however many layers there are."""
LAYERS = 6
"""Weight matrices without which there is no depth to speak of."""
SAMPLES = 3
"""First samples whose median slope is judged."""
LARGE = 1e3
"""Gradient element that is large by itself."""
RATIO = 3e4
"""Norm of the gradients over that of the weights. Sums instead of means gave 1,500 over 4,096 targets, so about 24,000
over 65,536; a recurrence with gain 1.8 over 20 steps 75,000, with 2.2 already 1e8."""
FIRST = 4
"""Samples that are judged by the ratio, and that later ones are compared with."""
GROWTH = 1e4
"""Growth over the first samples' median."""
SQUARED = 2.0**64
"""Gradient element whose square float32 cannot hold: its norm is infinite, and so is what Adam divides by."""
NOTABLE = 10.0
"""Gradient element below which growth is no explosion: zero-initialised parts start from almost nothing."""


@check("WD211", "non-finite-gradient", Severity.ERROR, BadGradients, implied_by=("WD202",))
def non_finite_gradient(seen: BadGradients) -> Findings:
    """A gradient is NaN or infinite although the loss is finite.

    **What it sees.** The exact extremes of every gradient before the step, beside the loss and the weights, which were
    finite. The first parameter is the one nearest to the loss; where the graph shows it, the operations on the way
    whose derivative can be infinite are named; where the first step was followed, the operation that made NaN or
    infinity of finite numbers, which a later ``nan_to_num`` keeps from the loss. Under a loss scale above 1 such a
    gradient is the scaler's search for a scale, and a matter for WD203 if it stays.

    **Why it matters.** The step writes NaN into every weight that it reaches, and the next loss is NaN.

    **How to fix.** The derivative of a root, a norm or a logarithm is infinite at zero even where its value is fine.

    ```python
    distance = (a - b).pow(2).sum(-1).sqrt()            # before: NaN where a equals b
    distance = ((a - b).pow(2).sum(-1) + 1e-12).sqrt()  # after
    ```

    **When to ignore.** If your own hook drops such steps.

    **Limits.** Looked at in sampled steps. Operations inside custom or compiled functions have no name in the graph.

    **Sources.** PyTorch's notes on autograd: gradients for non-differentiable functions.
    """
    if not seen.bad:
        return
    if not seen.loss_finite:
        yield Skip("the loss itself was not finite")
        return
    if not seen.weights_finite:
        yield Skip("weights were not finite before")
        return
    if seen.scaled and seen.scale > 1:
        yield Skip("the loss scaler was looking for a scale")
        return
    what = "infinite or NaN" if seen.infinite else "NaN"
    through = f", through {seen.operations[0]}" if seen.operations else ""
    if seen.culprit is not None:
        why, hint = made_by(seen.culprit)
        through = f": {why}"
    elif seen.operations:
        hint = f"keep the argument of {seen.operations[0]} away from zero: add a small constant inside, not outside"
    else:
        hint = f"look between {seen.bad[0]} and the loss for a root, norm, logarithm or division at zero"
    yield non_finite_gradient.alert(
        seen,
        f"{len(seen.bad)} gradients are {what}, the loss is finite{through}"[:99]
        if seen.culprit is not None
        else f"{len(seen.bad)} gradients are {what}, the loss is finite; first {seen.bad[0]}{through}"[:99],
        hint=hint,
        subjects=seen.bad[:NAMED],
        where=seen.culprit.where if seen.culprit is not None else "",
        evidence={
            "bad": len(seen.bad),
            "measured": seen.measured,
            "operations": ", ".join(seen.operations[:8]),
            "last_finite": seen.last_finite,
        },
    )


@check("WD212", "vanishing-gradients", Severity.WARNING, DepthProfile, implied_by=("WD201", "WD214", "WD302"))
def vanishing_gradients(
    seen: DepthProfile, *, octaves_per_layer: float = OCTAVES_PER_LAYER, octaves: float = OCTAVES
) -> Findings:
    """Gradients shrink layer by layer towards the input until early layers cannot learn.

    **What it sees.** The root mean square gradient of every weight matrix at the first samples, as a slope over the
    matrices in registration order (embeddings left out), in octaves. The slope instead of first against last: the order
    of registration may be wrong at the ends.

    **Why it matters.** Over 13 octaves the first layers move 8,000 times slower than the last ones.

    **How to fix.** Use ReLU-like activations with a matching initialisation, normalisation, or residual connections.

    ```python
    layers += [nn.Linear(64, 64), nn.Sigmoid()]                      # before
    layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()]       # after
    ```

    **When to ignore.** When only the last layers are meant to learn.

    **Limits.** Needs six matrices, and their registration in about the order of use. Below 0.7 octaves a layer it takes
    20 in all.

    **Sources.** Glorot and Bengio 2010; measured on MLPs, CNNs, ResNets and GPTs of up to 20 layers.
    """
    if len(seen.slopes) < SAMPLES or seen.layers < LAYERS:
        yield Skip(f"fewer than {SAMPLES} samples of {LAYERS} weight matrices with a gradient")
        return
    middle = sorted(seen.slopes)[len(seen.slopes) // 2]
    limit = f"2^{octaves:.0f}"
    if seen.span >= octaves and (middle >= octaves_per_layer or seen.span >= max(GONE, octaves)):
        yield vanishing_gradients.alert(
            seen,
            f"gradients shrink by 2^{middle:.1f} a layer towards the input, 2^{seen.span:.0f} in all (limit {limit})",
            hint="use ReLU-like activations with a matching initialisation, normalisation, or residual connections",
            subjects=(seen.first,),
            evidence={
                "octaves_per_layer": middle,
                "octaves": seen.span,
                "layers": seen.layers,
                "last": seen.last,
            },
        )


@check("WD213", "exploding-gradients", Severity.WARNING, GradientSizes, implied_by=("WD108", "WD216", "WD121", "WD123"))
def exploding_gradients(seen: GradientSizes, *, growth: float = GROWTH, ratio: float = RATIO) -> Findings:
    """Gradients are, or have become, larger by orders of magnitude than the weights can bear.

    **What it sees.** The largest gradient element before clipping: at the first samples beside the weights, later
    beside the first samples, and along the depth. A spike names the batch that it came from. Where gradients are
    clipped, or the optimizer divides by their size, a large start is a note only, as long as float32 holds its square.

    **Why it matters.** One step of plain SGD throws the weights away; recurrent networks do this within a few steps.

    **How to fix.** Clip the gradient's norm, and find the factor that repeats.

    ```python
    Trainer()                         # before
    Trainer(gradient_clip_val=1.0)    # after; recurrent weights: orthogonal with gain 1
    ```

    **When to ignore.** When the loss is a large sum by design and the learning rate is as small.

    **Limits.** Between samples nothing is seen. Growth is judged against the first four samples.

    **Sources.** Pascanu et al. 2013; measured: healthy largest elements between 1e-3 and 1e2.
    """
    now = seen.largest[-1] if seen.largest else 0.0
    gone = now / seen.start if seen.start else math.inf
    grown = not gone < growth and not now < NOTABLE
    early = seen.samples <= FIRST and not now < LARGE and not seen.ratio < ratio
    deep = seen.layers >= LAYERS and seen.span <= -OCTAVES and seen.samples >= SAMPLES
    if not (grown or early or deep):
        return
    if grown:
        message = f"largest gradient {now:.2g}, {gone:.2g} times the first ones (limit {growth:g}), batch {seen.batch}"
    elif early:
        message = f"gradients are {seen.ratio:.2g} times the weights (limit {ratio:g}); largest element {now:.2g}"
    else:
        message = (
            f"gradients grow 2^{-seen.span:.0f} times towards the input (limit 2^{OCTAVES:.0f}; {seen.layers} layers)"
        )
    harmless = (seen.clipped or (early and seen.adaptive and not grown)) and not now >= SQUARED
    yield exploding_gradients.alert(
        seen,
        message,
        hint="look for what is odd about that batch"
        if seen.clipped
        else "clip: Trainer(gradient_clip_val=1.0)" + ("; if it goes on, lower the learning rate" if grown else ""),
        subjects=(seen.name,),
        severity=Severity.INFO if harmless else Severity.WARNING,
        evidence={
            "largest": now,
            "start": seen.start,
            "over_weights": seen.ratio,
            "batch": seen.batch,
            "clipped": seen.clipped,
        },
    )
