"""How the loss develops: stuck, not finite, diverging."""

import math
from statistics import fmean, median

from ..alerts import Severity, number
from ..evidence.progress import Learning, LossFinite
from .causes import cause
from .check import Findings, Skip, check

SETTLED = 20
"""Optimizer steps after which even a head that was initialised to zero has moved."""
EQUAL = 1e-4
"""Deviation of a score between samples, in nats, below which all samples get the same prediction. A zero head under
Adam at a rate of 1e-5 spreads its scores by more within 20 steps."""
EQUAL_AT_FIRST = (
    "they were equal before any step: look for expand(), a cast to integers, a mask that hides all, dead units"
)
EQUAL_SINCE = "scale the inputs and lower the learning rate; look for dead ReLUs or vanished gradients"
LONG = 300
"""Optimizer steps after which a loss at chance is a finding although the scores differ."""
PER_CLASS = 200
"""Samples of each class that must have been seen by then."""
NEAR = 0.01
"""Relative distance from chance that counts as none."""
WORSE_THAN_MEAN, FALLEN = 2.0, 0.2
"""Squared error over the variance of the targets, and share by which a loss must have fallen in ``LONG`` steps: a model
that only has to find the scale of its targets does both within tens of steps where these are of order one."""
REAL = 0.1
"""Share of its peak from which a learning rate counts as real."""
WORSE, SLACK = 1.5, 1.0
"""A classification loss above ``WORSE`` · chance + ``SLACK`` nats is worse than knowing nothing."""
FAR = 10.0
"""A regression loss above this many times the variance of its targets is worse than knowing nothing."""
GROWN = 2.0
"""How far above its start a loss must be that diverges."""


@check(
    "WD141",
    "stuck-at-chance",
    Severity.WARNING,
    Learning,
    implied_by=(
        *("WD102", "WD105", "WD109", "WD122", "WD133", "WD142", "WD144", "WD201", "WD204", "WD212", "WD214", "WD217"),
        *("WD301", "WD302", "WD303", "WD304", "WD311", "WD316", "WD320", "WD501", "WD502", "WD506"),
    ),
)
def stuck_at_chance(seen: Learning) -> Findings:
    """The loss stays where knowing nothing would put it, although the learning rate is real.

    **What it sees.** The scores and the value of a classification loss at the samples. It alerts when after 20 steps
    every sample gets the same scores (deviation below 10⁻⁴ nats) in the last three samples, or when after 300 steps and
    200 samples per class the mean loss is within 1 % of ln k. A squared error on targets of the batch is told where it
    is over twice the variance of the targets after 300 steps, and has not fallen by a fifth. While the learning rate
    still rises, or is below a tenth of its peak, nothing is judged.

    **Why it matters.** The model ignores its input: dead ReLUs after a first step that was too large, vanished
    gradients, or labels that have nothing to do with the data. A regression on large numbers has a long way to go: with
    Adam an output moves by about the learning rate times its inputs in a step.

    **How to fix.** Scale the inputs, lower the learning rate, use a leaky activation or a normalisation; then check
    that images and labels belong together. Overfit one batch: a model that cannot do that is broken::

        Trainer(overfit_batches=1, max_epochs=300)    # the loss has to come close to 0

    **When to ignore.** Tasks with a long plateau (grokking, parity), and random labels of a smoke test.

    **Limits.** Needs a classification loss or a squared error on labels or targets of the batch. A regression that
    predicts their mean is not judged.

    **Sources.** Karpathy, A Recipe for Training Neural Networks; corpus of reports, case of the dead ReLUs.
    """
    last = seen.scores[-3:]
    now = seen.scores[-1]
    if now.attempt < SETTLED:
        yield Skip(f"fewer than {SETTLED} optimizer steps")
        return
    if math.isnan(seen.rate) or seen.rising or not seen.rate >= REAL * seen.peak or seen.rate <= 0:
        yield Skip("the learning rate is still rising, or nearly zero")
        return
    if not seen.classes:
        yield from _far_from_targets(seen)
        return
    equal = len(last) == 3 and last[0].attempt > 0 and all(s.spread <= EQUAL for s in last)
    slow = (
        now.attempt >= LONG
        and now.samples >= PER_CLASS * max(seen.classes, 2)
        and abs(seen.recent / now.chance - 1) < NEAR
        and all(abs(s.value / s.chance - 1) < 0.2 for s in seen.scores)
    )
    loss = number(now.value if equal or math.isnan(seen.recent) else seen.recent)
    if equal or slow:
        what = "all samples get the same scores" if equal else "no progress"
        yield stuck_at_chance.alert(
            seen,
            f"loss {loss} after {now.attempt} steps, chance is {number(now.chance)}: {what}",
            hint=(EQUAL_AT_FIRST if all(s.spread <= EQUAL for s in seen.scores[:2]) else EQUAL_SINCE)
            if equal
            else "check that inputs and labels belong together: can the model overfit ten samples?",
            where=seen.where,
            evidence={
                "value": now.value,
                "chance": now.chance,
                "spread": now.spread,
                "steps": now.attempt,
                "learning_rate": seen.rate,
            },
        )


def _far_from_targets(seen: Learning) -> Findings:
    last, now = seen.scores[-3:], seen.scores[-1]
    if now.attempt < LONG or math.isnan(seen.recent):
        yield Skip(f"fewer than {LONG} steps of a regression")
        return
    far = all(s.value > WORSE_THAN_MEAN * s.chance > 0 for s in last)
    if far and seen.recent > WORSE_THAN_MEAN * now.chance and seen.recent > (1 - FALLEN) * seen.scores[0].value:
        yield stuck_at_chance.alert(
            seen,
            f"squared error {number(seen.recent)} after {now.attempt} steps, "
            f"the targets' own variance is {number(now.chance)}",
            hint="standardise the targets with mean and deviation of the training set, and undo it in predictions",
            where=seen.where,
            evidence={
                "value": now.value,
                "chance": now.chance,
                "first": seen.scores[0].value,
                "steps": now.attempt,
                "learning_rate": seen.rate,
            },
        )


@check(
    "WD142",
    "non-finite-loss",
    Severity.ERROR,
    LossFinite,
    implied_by=("WD103", "WD105", "WD121", "WD202", "WD211"),
)
def non_finite_loss(seen: LossFinite) -> Findings:
    """The loss became NaN or infinite; the first such batch, and why.

    **What it sees.** The loss of every batch, kept on the device and read at samples. The cause is looked for in this
    order: NaN in the batch, all labels ignored, a batch of one sample, the first operation that made NaN or infinity of
    finite numbers where the first step was followed, a logarithm of a softmax or sigmoid in its graph, float16, losses
    that grew before, other operations that can divide by zero. Else it says that the cause is unknown.

    **Why it matters.** The gradients of such a batch are NaN, and after the step so are all weights they reach.

    **How to fix.** By the cause: clean the data; ``drop_last=True``; ``F.cross_entropy`` on the logits instead of
    ``log(softmax(...))``; bf16 instead of fp16; a lower learning rate::

        -torch.softmax(z, 1).log()[rows, labels].mean()    # before: the logarithm of 0
        F.cross_entropy(z, labels)                         # after

    **When to ignore.** Never for NaN. Where later losses are finite again (a step that was skipped), it is a warning.

    **Limits.** Needs a loss that the training step returns. An operation in the graph is a suspicion, not a proof.

    **Sources.** Micikevicius et al. 2018 for fp16; DeepLocalize for logarithms of zero.
    """
    if seen.batch < 0:
        return
    why, fix = cause(seen)
    value = "NaN" if math.isnan(seen.value) else number(seen.value)
    yield non_finite_loss.alert(
        seen,
        f"loss is {value} in batch {seen.batch}: {why}"[:99],
        severity=Severity.WARNING if seen.recovered else None,
        hint=fix,
        where=seen.culprit.where if seen.culprit is not None else "",
        evidence={
            "batch": seen.batch,
            "batch_size": seen.size,
            "last_finite": seen.earlier[-1] if seen.earlier else None,
            "precision": seen.precision,
            "hazards": ", ".join(seen.hazards),
        },
    )


@check("WD144", "diverging-loss", Severity.ERROR, Learning, implied_by=("WD108", "WD142", "WD216", "WD317"))
def diverging_loss(seen: Learning) -> Findings:
    """A supervised loss rises, and is worse than knowing nothing.

    **What it sees.** Loss calls on labels or targets of the batch at the samples. It alerts when the last three rise,
    the last one is twice the first, and above one and a half times chance plus one nat; for a regression above ten
    times the variance of the targets. Without a steady rise, a median of the last four above twice that limit is a
    warning.

    **Why it matters.** Each step makes the model worse. A learning rate far too large, a sign (``-loss``,
    ``maximize=True``), or gradients that pile up.

    **How to fix.** Look at the sign first: does ``training_step`` return the loss, and is ``maximize`` off? Then divide
    the learning rate by ten::

        loss = -F.cross_entropy(scores, labels)    # before
        loss = F.cross_entropy(scores, labels)     # after

    **When to ignore.** Losses that are meant to rise are not judged: targets that the model makes itself (GANs,
    Q-learning, contrastive queues) are no targets of the batch. An adversarial head on real labels may be one.

    **Limits.** Needs a loss function that can be seen, and four samples.

    **Sources.** ln k is the loss of a uniform prediction, the variance that of the mean: a model that does worse is not
    learning slowly.
    """
    scores = seen.scores
    if len(scores) < 4:
        yield Skip("fewer than four samples")
        return
    first, now = scores[0], scores[-1]
    limit = WORSE * now.chance + SLACK if seen.classes else FAR * fmean(s.chance for s in scores)
    if not limit:
        yield Skip("targets that do not differ")
        return
    last = [s.value for s in scores[-3:]]
    rising = last[0] < last[1] < last[2]
    worse = median(s.value for s in scores[-4:]) > 2 * limit
    if not ((rising and min(last[1:]) > limit) or worse) or now.value <= GROWN * first.value:
        return
    yield diverging_loss.alert(
        seen,
        f"loss {number(now.value)} after {now.attempt} steps, at first {number(first.value)}; limit {number(limit)}",
        severity=None if rising else Severity.WARNING,
        hint="check the sign of the loss and maximize=, then divide the learning rate by ten",
        where=seen.where,
        evidence={
            "value": now.value,
            "first": first.value,
            "chance": now.chance,
            "learning_rate": seen.rate,
            "steps": now.attempt,
        },
    )
