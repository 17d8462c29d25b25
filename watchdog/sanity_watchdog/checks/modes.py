"""Modes: what trains in eval mode, what drops too much, statistics that do not fit."""

import statistics
from collections.abc import Sequence

from ..alerts import Severity, number
from ..evidence.modes import Dropouts, Normalisation, Resting, RunningStatistics, TrainingModes
from .check import Findings, Skip, check

DROPS_NEARLY_ALL = 0.95
"""Dropout probability from which less than one value in twenty is left; usual ones are 0.1 to 0.5, rarely 0.8."""

SHIFTED = 1.0
"""Median distance of the running mean from the batch's, in standard deviations. Healthy networks after 55 steps:
at most 0.3."""
SPREAD = 4.0
"""Factor between running and batch variance. Healthy networks after 55 steps: at most 1.6."""
SAMPLES = 2
"""Samples in which a layer must be off."""
ELEMENTS = 16
"""Values per channel in a batch: below, its own statistics are no measure (standard error of the mean 1/4)."""


@check("WD504", "eval-mode", Severity.ERROR, TrainingModes)
def eval_mode(seen: TrainingModes) -> Findings:
    """Modules that are being trained are in eval mode.

    **What it sees.** At the first and at sampled optimizer steps: modules in eval mode whose parameters that optimizer
    trains and that received gradients. Frozen parameters, modules outside the optimizer and teachers do not count; nor
    does a normalisation layer whose own weights are frozen, or a single layer that is switched off while everything
    around it trains (INFO). It is an ERROR for the whole module, or after a flip during the run.

    **Why it matters.** Dropout is off and BatchNorm normalises with statistics that never follow the weights: the model
    is trained as another one than the code says.

    **How to fix.** ``model.train()`` before ``fit``, or for the part that is named; Lightning keeps each module's mode
    as it finds it, and hubs often return models in eval mode::

        self.backbone = AutoModel.from_pretrained(name)
        self.backbone.train()

    **When to ignore.** Where a backbone is fine-tuned with frozen statistics on purpose.

    **Limits.** A mode that is switched back before the optimizer steps is not seen.

    **Sources.** Lightning 2.2 release notes (modes are kept); ``transformers``: ``from_pretrained`` returns ``eval()``.
    """
    together = [r for r in seen.resting if not r.alone]
    if together:
        yield from _resting(seen, together)
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
    since = f" since step {seen.since}" if seen.since is not None and any(r.flipped for r in worst) else ""
    effect = f"it changes {_count(len(layers), 'layer')}" if layers else "no layer of a known kind depends on it"
    yield eval_mode.alert(
        seen,
        f"{what} in eval mode{since}: {effect}",
        hint="call .train() on it before fit" if not since else "call .train() after the code that calls .eval()",
        subjects=[r.name or r.kind for r in worst],
        severity=severity,
        evidence={"modules": len(worst), "of": seen.modules, "layers": ", ".join(layers[:8])},
    )


@check("WD505", "extreme-dropout", Severity.WARNING, Dropouts)
def extreme_dropout(seen: Dropouts, *, rate: float = DROPS_NEARLY_ALL) -> Findings:
    """Dropout drops nearly everything, or stays active in evaluation.

    **What it sees.** The probability of each dropout layer at the start, and in the first validation batch each call of
    a dropout function that really drops although the model is in eval mode.

    **Why it matters.** With ``Dropout(0.95)`` one value in twenty is left; people who know TensorFlow 1 mean the share
    to keep. Dropout in evaluation makes every validation score worse and different each time.

    **How to fix.** ::

        x = F.dropout(x, 0.5)                            # before
        x = F.dropout(x, 0.5, training=self.training)    # after
        F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)

    **When to ignore.** Monte Carlo dropout; a layer that was put into training mode on purpose is INFO.

    **Limits.** Only the first validation batch is looked at, and nothing inside compiled code.

    **Sources.** transformers#33844; ``torch.nn.functional.dropout``: ``training=True`` is the default.
    """
    high = sorted(((p, name) for name, p in seen.rates if not p < rate), reverse=True)
    if high:
        yield extreme_dropout.alert(
            seen,
            f"{_count(len(high), 'layer')} of dropout drop up to {_percent(high[0][0])} (limit {_percent(rate)})",
            hint=f"the argument is the share to drop, not the share to keep: {number(round(1 - high[0][0], 6))}?",
            subjects=[name for _, name in high],
            evidence={"rate": high[0][0], "layers": len(high)},
        )
    calls = sorted(seen.calls or (), key=lambda c: c.meant)
    if calls:
        first = calls[0]
        yield extreme_dropout.alert(
            seen,
            f"{first.function} drops {number(100 * first.rate)} % of the values in evaluation",
            hint="training=self.training"
            if "attention" not in first.function
            else "dropout_p=p if self.training else 0",
            subjects=tuple(dict.fromkeys(c.owner for c in calls if c.meant == first.meant)),
            severity=Severity.INFO if first.meant else Severity.WARNING,
            where=first.where,
            evidence={"rate": first.rate, "calls": len(calls)},
        )


@check("WD508", "stale-statistics", Severity.WARNING, RunningStatistics, implied_by=("WD504",))
def stale_statistics(seen: RunningStatistics) -> Findings:
    """BatchNorm's running statistics are far from what the batches show.

    **What it sees.** After 55 optimizer steps, at a few sampled steps, per layer: the median distance between running
    and batch mean in standard deviations, and the factor between the variances. An alert needs a distance above 1 or a
    factor above 4 in two samples in a row.

    **Why it matters.** Training normalises with the batch, evaluation with the running statistics: the model that is
    evaluated is not the one that was trained.

    **How to fix.** PyTorch's ``momentum`` is the share of the *new* value: 0.1, not 0.9 or 0.99 as elsewhere, and never
    0. Where two kinds of data share a layer, give each its own.

    **When to ignore.** Where statistics are estimated anew after training, as stochastic weight averaging does.

    **Limits.** Layers with fewer than 16 values per channel in a batch are left out; nothing inside compiled code.

    **Sources.** Ioffe and Szegedy 2015; Wu and Johnson, Rethinking "Batch" in BatchNorm, 2021.
    """
    recent = seen.samples[-SAMPLES:]
    judged = [[n for n in layers if n.elements >= ELEMENTS] for layers in recent]
    if len(recent) < SAMPLES or not all(judged):
        yield Skip("not enough samples after 55 steps with batches that are large enough")
        return
    off = [{n.name for n in layers if _off(n)} for layers in judged]
    stale = set.intersection(*off)
    if stale:
        worst = sorted((n for n in judged[-1] if n.name in stale), key=lambda n: -_distance(n))
        first = worst[0]
        yield stale_statistics.alert(
            seen,
            f"running mean {number(first.shift)} deviations off (limit {number(SHIFTED)}), "
            f"variance {number(first.spread)} times the batch's (limit {number(SPREAD)})",
            hint=_statistics_hint(first),
            subjects=[n.name for n in worst],
            evidence={
                "shift": first.shift,
                "spread": first.spread,
                "limit": SHIFTED,
                "momentum": first.momentum,
                "updates": first.updates,
                "layers": len(worst),
                "median_shift": statistics.median(n.shift for n in judged[-1]),
            },
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"


def _off(layer: Normalisation) -> bool:
    return not (layer.shift <= SHIFTED and 1 / SPREAD <= layer.spread <= SPREAD)


def _distance(layer: Normalisation) -> float:
    spread = max(layer.spread, 1 / layer.spread) if layer.spread > 0 else float("inf")
    return max(layer.shift / SHIFTED, spread / SPREAD)


def _statistics_hint(layer: Normalisation) -> str:
    if not layer.updates:
        return "the statistics were never updated: put the layer into training mode"
    if layer.momentum is not None and layer.momentum < 0.01:
        return f"momentum={number(layer.momentum)} keeps the old statistics; PyTorch's default is 0.1"
    return "look for data of two kinds in one layer, or a momentum that is not the share of the new value"
