"""Settings of optimizers that cannot be meant."""

import math
from collections.abc import Iterator

from ..alerts import Severity
from ..evidence.hyperparameters import Group, Hyperparameters
from .check import Findings, check

SHRINK = 0.02
"""Learning rate × weight decay: share of each weight that decay takes in one step. Used values lie below 0.005."""
COUPLED = 1.0
"""Weight decay added to the gradient of an adaptive method, where it outweighs gradients of the size of the weights."""
ADAPTIVE = ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta")
LARGEST_EPS = 1.0
"""Largest eps in use (Inception's RMSprop): beyond it the step no longer depends on the size of the gradient's past."""
SLOW = 0.99
"""Decay of the average gradient from which on, with a faster average of squares, the two were swapped."""

LARGEST_FACTOR, SAME = 0.05, 1e-3
"""A schedule's factor that never gets beyond it, and is as large as the rate to that precision, is the rate itself."""


@check("WD318", "absurd-hyperparameter", Severity.WARNING, Hyperparameters)
def absurd_hyperparameter(seen: Hyperparameters, *, shrink: float = SHRINK) -> Findings:
    """An optimizer was given a setting that nobody can mean.

    **What it sees.** The parameter groups before the first step, and again where a schedule has changed them: swapped
    betas, a product of rate and weight decay that eats the weights, momentum or a beta of 1, full dampening, negative
    or non-finite values, an eps of zero or above 1, ``maximize=True`` on a known loss; a ``LambdaLR`` whose
    function returns the rate, by which the rate is multiplied once more.

    **Why it matters.** torch accepts them all. What follows looks like a fault of the model.

    **How to fix.** Each finding names the group, the value and the limit::

        AdamW(self.parameters(), betas=(0.999, 0.9))            # before: swapped
        AdamW(self.parameters(), betas=(0.9, 0.999))            # after
        SGD(self.parameters(), lr=0.1, weight_decay=9.0)        # before: keeps 10 % of a weight per step
        SGD(self.parameters(), lr=0.1, weight_decay=5e-4)       # after
        LambdaLR(Adam(net.parameters(), lr=1e-3), lambda step: 1e-3 * cosine(step))     # before: 1e-6 at most
        LambdaLR(Adam(net.parameters(), lr=1e-3), cosine)                               # after: a factor of lr

    **When to ignore.** Where the value is the experiment.

    **Limits.** Values that are merely unusual are not meant. Tensors on a device are not read. With L2 inside Adam the
    product says nothing; there the decay itself is judged.

    **Sources.** Kingma and Ba, *Adam*; Loshchilov and Hutter, *Decoupled Weight Decay Regularization*; DeepCrime's
    mutations of optimisers.
    """
    found = [(group, *finding) for group in seen.groups for finding in _absurd(group, shrink, seen.climbed)]
    if found:
        group, severity, text, fix, value = max(found, key=lambda f: f[1])
        others = len({(f[0].optimizer, f[0].index, f[2]) for f in found}) - 1
        yield absurd_hyperparameter.alert(
            seen,
            f"{group.kind} ({group.place}): {text}",
            severity=severity,
            hint=fix,
            evidence={"value": value, "groups": len({(f[0].optimizer, f[0].index) for f in found}), "others": others},
        )


Finding = tuple[Severity, str, str, float]


def _absurd(group: Group, shrink: float, climbed: str) -> Iterator[Finding]:
    error, warning = Severity.ERROR, Severity.WARNING
    for name, value in (("lr", group.lr), ("weight_decay", group.weight_decay), ("eps", group.eps)):
        if value is not None and not value >= 0:
            yield error, f"{name} is {value:g}", f"give {name} a positive value, or bound the schedule below", value
        elif value is not None and math.isinf(value):
            yield error, f"{name} is infinite", f"give {name} a finite value", value
    if group.eps == 0:
        yield warning, "eps is 0: a parameter without gradient divides 0 by 0", "set eps to 1e-8", 0.0
    elif group.eps is not None and LARGEST_EPS < group.eps < math.inf:
        yield (
            warning,
            f"eps is {group.eps:g}; limit {LARGEST_EPS:g}: it outweighs every gradient",
            "set eps to 1e-8",
            group.eps,
        )
    peak, decay = group.peak or 0.0, group.weight_decay or 0.0
    if group.decoupled and peak * decay >= shrink:
        text = f"lr × weight_decay = {peak * decay:.3g}; limit {shrink:g}: each step takes that share of a weight"
        yield warning, text, "lower weight_decay: usual products lie below 0.005", peak * decay
    elif not group.decoupled and group.kind in ADAPTIVE and decay >= COUPLED:
        text = f"weight_decay is {decay:g}; limit {COUPLED:g}: added to the gradient it outweighs it"
        yield warning, text, "lower weight_decay, or use AdamW, which applies it to the weights", decay
    if group.momentum is not None and not 0 <= group.momentum < 1:
        yield warning, f"momentum is {group.momentum:g}; limit 1", "use a momentum below 1, such as 0.9", group.momentum
    if group.momentum and group.dampening is not None and group.dampening >= 1:
        text = f"dampening is {group.dampening:g}: after the first step no gradient enters the momentum"
        yield warning, text, "set dampening to 0", group.dampening
    for beta in group.betas:
        if not 0 <= beta < 1:
            yield warning, f"a beta is {beta:g}; limit 1", "use betas below 1, such as (0.9, 0.999)", beta
    if len(group.betas) == 2 and 1 > group.betas[0] > group.betas[1] and group.betas[0] >= SLOW:
        text = f"betas are {group.betas}: the average gradient is slower than that of squares"
        yield warning, text, f"swap the betas: ({group.betas[1]:g}, {group.betas[0]:g})", group.betas[0]
    if group.factor is not None and group.factor <= LARGEST_FACTOR and math.isclose(group.factor, peak, rel_tol=SAME):
        text = f"LambdaLR multiplies lr {peak:g} by the rate again: {peak * group.factor:.1e} at most"
        yield warning, text, "let the function return a factor of lr: 1 at its highest", group.factor
    if group.maximize and climbed:
        yield warning, f"maximize=True climbs the loss {climbed}", "remove maximize=True, or return a reward", 1.0
