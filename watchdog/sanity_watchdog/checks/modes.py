"""Modes: what trains in eval mode, what drops too much, statistics that do not fit."""

import math
from collections.abc import Sequence

from ..alerts import Severity, number
from ..evidence.modes import Dropouts, Normalisation, Resting, RunningStatistics, TrainingModes
from .check import Findings, Skip, check

DROPS_NEARLY_ALL = 0.95
"""Dropout probability from which less than one value in twenty is left; usual ones are 0.1 to 0.5, rarely 0.8."""

SHIFTED, SPREAD = 1.0, 4.0
"""Median distance of the running mean from the batch's in standard deviations, and factor between the variances, of
statistics that have taken in enough batches. Healthy networks with rates from 0.001 to 1 and batches of 16 and more:
at most 0.3 and 1.3."""
FIXED_SHIFT, FIXED_SPREAD = 0.3, 1.5
"""The same for statistics that cannot move: their initial values are off by 0.35 to 0.9, and 1.6 to 5 times."""
FIXED = 1e-4
"""Momentum up to which statistics do not move within 10,000 steps."""
TAKEN_IN = 0.95
"""Share of the running statistics that must come from the batches: with momentum 0.1 after 29 of them."""
AFTER = "call .train() after the code that calls .eval()"
TEACHER = "a teacher, as gradients reach the targets? Then freeze it: requires_grad_(False); else call .train() on it"
SAMPLES = 2
"""Samples in which a layer must be off."""
ROWS = 16
"""Batch size below which the batch's own statistics are no measure: standard error of the mean 1/4."""


@check("WD504", "eval-mode", Severity.ERROR, TrainingModes)
def eval_mode(seen: TrainingModes) -> Findings:
    """Modules that are being trained are in eval mode.

    **What it sees.** At the first and at sampled optimizer steps: modules in eval mode whose parameters that optimizer
    trains and that received gradients. Frozen parameters, modules outside the optimizer and teachers do not count; nor
    does a normalisation layer whose own weights are frozen, or a single layer that is switched off while everything
    around it trains (INFO; a WARNING for normalisation layers whose statistics, mean 0 and variance 1, weights and
    biases are still those of new layers). It is an ERROR for the whole module, or after a flip during the run.

    **Why it matters.** Dropout is off and BatchNorm normalises with statistics that never follow the weights: the model
    is trained as another one than the code says.

    **How to fix.** ``model.train()`` before ``fit``, or for the part that is named; Lightning keeps each module's mode
    as it finds it, and hubs often return models in eval mode::

        self.backbone = AutoModel.from_pretrained(name)            # before: in eval mode
        self.backbone = AutoModel.from_pretrained(name).train()    # after

    Code that calls ``eval()`` in the middle of training has to call ``train()`` again::

        self.eval(); self.draw_sample()                 # before: every later step trains in eval mode
        self.eval(); self.draw_sample(); self.train()   # after

    **When to ignore.** Where a backbone is fine-tuned with frozen statistics on purpose: those of pretrained weights.

    **Limits.** A mode that is switched back before the optimizer steps is not seen.

    **Sources.** Lightning 2.2 release notes (modes are kept); ``transformers``: ``from_pretrained`` returns ``eval()``.
    """
    together = [r for r in seen.resting if not r.alone]
    if together:
        yield from _resting(seen, together)
    elif fresh := [r for r in seen.resting if r.fresh]:
        yield eval_mode.alert(
            seen,
            f"{_count(len(fresh), 'layer')} in eval mode with the statistics of a new layer: nothing is normalised",
            hint=_back(fresh, True),
            subjects=[r.name for r in fresh],
            evidence={"layers": len(fresh)},
            severity=Severity.WARNING,
        )
    elif seen.resting:
        names = [r.name for r in seen.resting]
        yield eval_mode.alert(
            seen,
            f"{_count(len(names), 'single layer')} in eval mode while everything around is in training mode",
            hint="nothing to do where their statistics or dropout are switched off on purpose",
            subjects=names,
            severity=Severity.INFO,
            evidence={"layers": len(names)},
        )


def _resting(seen: TrainingModes, together: Sequence[Resting]) -> Findings:
    worst = sorted(together, key=lambda r: (bool(r.name), -len(r.layers)))
    layers = [layer for r in worst for layer in r.layers]
    root, flipped = not worst[0].name, any(r.flipped and r.layers for r in worst)
    if not layers:
        severity = Severity.WARNING if root else Severity.INFO
    else:
        severity = Severity.ERROR if root or flipped else Severity.WARNING
    what = "the whole module trains" if root else f"{len(worst)} modules train" if len(worst) > 1 else "a module trains"
    since = f" (first noticed at step {seen.since})" if seen.since is not None and any(r.flipped for r in worst) else ""
    effect = f"it changes {_count(len(layers), 'layer')}" if layers else "no layer of a known kind depends on it"
    yield eval_mode.alert(
        seen,
        f"{what} in eval mode{since}: {effect}",
        hint=TEACHER if seen.targets and not root and not since else _back(worst, bool(since)),
        subjects=[r.name or r.kind for r in worst],
        severity=severity,
        evidence={"modules": len(worst), "of": seen.modules, "layers": ", ".join(layers[:8])},
    )


def _back(worst: Sequence[Resting], fallen: bool) -> str:
    override = next((r.override for r in worst if r.override), "")
    if override:
        return f"call .train() on it; where {override} overrides train(), let it put frozen parts alone into eval mode"
    return AFTER if fallen else "call .train() on it before fit"


@check("WD505", "extreme-dropout", Severity.WARNING, Dropouts)
def extreme_dropout(seen: Dropouts, *, rate: float = DROPS_NEARLY_ALL) -> Findings:
    """Dropout drops nearly everything or the outputs themselves, or stays active in evaluation.

    **What it sees.** The probability of each dropout layer at the start and of each call of a dropout function in the
    first training step, and what it drops straight behind a layer whose outputs a loss is then given. In the first
    validation batch each call that really drops although the model is in eval mode.

    **Why it matters.** With ``Dropout(0.95)`` one value in twenty is left; people who know TensorFlow 1 mean the share
    to keep. Dropout in evaluation makes every validation score worse and different each time. Scores that are put to
    zero at random are no answer of the network.

    **How to fix.** ::

        x = F.dropout(x, 0.5)                            # before
        x = F.dropout(x, 0.5, training=self.training)    # after
        F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)

    **When to ignore.** Monte Carlo dropout, and Tacotron's pre-net; a layer that was put into training mode on purpose,
    or a line that says ``training=True``, is INFO.

    **Limits.** Only the first validation batch is looked at, and nothing inside compiled code.

    **Sources.** transformers#33844; ``torch.nn.functional.dropout``: ``training=True`` is the default.
    """
    high = sorted(((p, name) for name, p in seen.rates if not p < rate), reverse=True)
    if high:
        yield extreme_dropout.alert(
            seen,
            f"dropout of up to {_percent(high[0][0])} in {_count(len(high), 'layer')} (limit {_percent(rate)})",
            hint=f"the argument is the share to drop, not the share to keep: {number(round(1 - high[0][0], 6))}?",
            subjects=[name for _, name in high],
            evidence={"rate": high[0][0], "layers": len(high)},
        )
    drops = max((d for d in seen.drops if not d[1] < rate), key=lambda d: d[1], default=None)
    if drops is not None:
        name, share, where = drops
        kept = "remove the call to keep all" if share == 1 else f"p={number(round(1 - share, 6))}?"
        yield extreme_dropout.alert(
            seen,
            f"{name} with p={number(share)} drops {_percent(share)} of the values in training (limit {_percent(rate)})",
            hint=f"p is the share to drop, not the share to keep: {kept}",
            where=where,
            evidence={"rate": share, "calls": len(seen.drops)},
        )
    for name, share, where in seen.outputs[:1]:
        yield extreme_dropout.alert(
            seen,
            f"dropout behind the last layer puts {_percent(share)} of what {name} gets to zero",
            hint="put dropout in front of the last layer",
            where=where,
            evidence={"rate": share, "outputs": len(seen.outputs)},
        )
    calls = sorted(seen.calls or (), key=lambda c: c.meant)
    if calls:
        first = calls[0]
        yield extreme_dropout.alert(
            seen,
            f"{first.function} drops {number(100 * first.rate)} % of the values in evaluation",
            hint="pass training=self.training to it"
            if "attention" not in first.function
            else "pass dropout_p=p if self.training else 0.0",
            subjects=tuple(dict.fromkeys(c.owner for c in calls if c.meant == first.meant)),
            severity=Severity.INFO if first.meant else Severity.WARNING,
            where=first.where,
            evidence={"rate": first.rate, "calls": len(calls)},
        )


@check("WD508", "stale-statistics", Severity.WARNING, RunningStatistics, implied_by=("WD122", "WD142", "WD504"))
def stale_statistics(seen: RunningStatistics) -> Findings:
    """BatchNorm's running statistics are far from what the batches show.

    **What it sees.** At a few sampled steps, per layer: the median distance between running and batch mean in standard
    deviations of the batch, and the factor between the variances. An alert needs a distance above 1 or a factor above 4
    in two samples in a row, of statistics that come from the batches by 95 %; or 0.3 and 1.5 where the momentum keeps
    them from moving at all. Also layers in eval mode whose weights no optimizer moves, beside such that learn: weights
    that move at three samples or validations in a row and statistics that do not are those of an average of the network
    (a teacher) that forgets its buffers.
    And layers that take in batches of validation, where ``validation_step`` leaves the whole module in training mode.

    **Why it matters.** Training normalises with the batch, evaluation with the running statistics: the model that is
    evaluated is not the one that was trained. What is evaluated in training mode depends on the batch and on dropout,
    and validation data leak into the statistics.

    **How to fix.** PyTorch's ``momentum`` is the share of the *new* value: 0.1, where others write 0.9, and never 0::

        nn.BatchNorm2d(64, momentum=0.0)   # before: the statistics stay 0 and 1
        nn.BatchNorm2d(64)                 # after
        for b, e in zip(net.buffers(), teacher.buffers()): e.copy_(b)    # beside the average of the parameters

    **When to ignore.** Where statistics are estimated anew after training, as stochastic weight averaging does.

    **Limits.** Batches of fewer than 16 are left out, and so are other layers in eval mode and compiled code.

    **Sources.** Ioffe and Szegedy 2015; Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021.
    """
    if seen.evaluated:
        yield stale_statistics.alert(
            seen,
            f"the module trains in validation: {_count(len(seen.evaluated), 'layer')} took in its batches",
            hint="remove train() from validation_step: Lightning sets eval mode before validation, and back",
            subjects=seen.evaluated,
            evidence={"evaluated": len(seen.evaluated)},
        )
        return
    if seen.forgotten:
        yield stale_statistics.alert(
            seen,
            f"weights of {_count(len(seen.forgotten), 'layer')} are moved by hand, their statistics stand still",
            hint="average the buffers as well: for b, e in zip(net.buffers(), average.buffers()): e.copy_(b)",
            subjects=seen.forgotten,
            evidence={"forgotten": len(seen.forgotten)},
        )
    judged = [[n for n in layers if n.rows >= ROWS and _settled(n)] for layers in seen.samples[-SAMPLES:]]
    if len(judged) < SAMPLES or not all(judged):
        yield Skip(f"fewer than {SAMPLES} samples of settled statistics with batches of {ROWS}")
        return
    stale = set.intersection(*({n.name for n in layers if _excess(n) > 1} for layers in judged))
    worst = sorted((n for n in judged[-1] if n.name in stale), key=_excess, reverse=True)
    if worst:
        first = worst[0]
        yield stale_statistics.alert(
            seen,
            f"against the batch, the running mean is {number(first.shift)} deviations off, "
            f"the variance {number(first.spread)} times",
            hint=_statistics_hint(first),
            subjects=[n.name for n in worst],
            evidence={
                "shift": first.shift,
                "spread": first.spread,
                "momentum": first.momentum,
                "updates": first.updates,
                "layers": len(worst),
            },
        )


def _fixed(layer: Normalisation) -> bool:
    return layer.momentum is not None and layer.momentum <= FIXED


def _settled(layer: Normalisation) -> bool:
    if layer.momentum is None or _fixed(layer):
        return True
    return (1 - layer.momentum) ** layer.updates <= 1 - TAKEN_IN


def _excess(layer: Normalisation) -> float:
    """How far off, over the limit; infinite where it is not a number."""
    shift, spread = (FIXED_SHIFT, FIXED_SPREAD) if _fixed(layer) else (SHIFTED, SPREAD)
    if not (layer.spread > 0 and math.isfinite(layer.spread) and math.isfinite(layer.shift)):
        return math.inf
    return max(
        layer.shift / shift, math.log(layer.spread) / math.log(spread), -math.log(layer.spread) / math.log(spread)
    )


def _statistics_hint(layer: Normalisation) -> str:
    if _fixed(layer):
        return f"momentum={number(layer.momentum)} keeps the initial statistics; PyTorch's default is 0.1"
    return "look for inputs that changed while the statistics stood still: the layer's mode, its momentum, the data"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"
