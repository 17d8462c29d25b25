import math
from dataclasses import replace

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.hyperparameters import absurd_hyperparameter
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.evidence.hyperparameters import Group, Hyperparameters

ADAMW = Group(0, 0, "AdamW", 4, 1e-3, 1e-3, 0.01, True, (0.9, 0.999), eps=1e-8)
SGD = Group(0, 0, "SGD", 4, 0.1, 0.1, 5e-4, True, momentum=0.9, dampening=0.0)


def seen(*groups: Group, climbed: str = "") -> Hyperparameters:
    return Hyperparameters(groups=groups, climbed=climbed)


FIRING = [
    (absurd_hyperparameter, seen(evidence, climbed=climbed))
    for evidence, climbed in [
        (replace(ADAMW, betas=(0.999, 0.9)), ""),
        (replace(SGD, weight_decay=9.0), ""),
        (replace(ADAMW, lr=0.0, peak=1.0, weight_decay=0.3), ""),
        (replace(ADAMW, kind="Adam", decoupled=False, weight_decay=10.0), ""),
        (replace(SGD, momentum=1.0), ""),
        (replace(SGD, dampening=1.0), ""),
        (replace(SGD, lr=-0.1), ""),
        (replace(SGD, lr=math.nan), ""),
        (replace(SGD, weight_decay=-1e-4), ""),
        (replace(ADAMW, lr=math.inf), ""),
        (replace(ADAMW, eps=0.0), ""),
        (replace(ADAMW, eps=10.0), ""),
        (replace(ADAMW, betas=(0.9, 1.0)), ""),
        (replace(ADAMW, maximize=True), "cross_entropy"),
        (replace(ADAMW, lr=2e-9, factor=1e-3), ""),
    ]
]
FIRING.append((absurd_hyperparameter, seen(ADAMW, replace(SGD, optimizer=1, index=2, momentum=1.5))))
QUIET = [
    (absurd_hyperparameter, seen(evidence))
    for evidence in [
        ADAMW,
        SGD,
        replace(ADAMW, betas=(0.5, 0.999)),
        replace(ADAMW, betas=(0.0, 0.9)),
        replace(ADAMW, betas=(0.95, 0.95)),
        replace(ADAMW, betas=(0.95, 0.9)),
        replace(ADAMW, betas=(0.9, 0.99), kind="Lion", weight_decay=10.0, lr=1e-4, peak=1e-4),
        replace(ADAMW, kind="Adam", decoupled=False, weight_decay=0.5, lr=0.5, peak=0.5),
        replace(ADAMW, weight_decay=1.0),
        replace(ADAMW, lr=0.0, peak=1e-3),
        replace(ADAMW, eps=1.0),
        replace(ADAMW, lr=None, peak=None),
        replace(ADAMW, maximize=True),
        replace(ADAMW, factor=1.0),
        replace(ADAMW, factor=2e-3),
        replace(ADAMW, lr=1.0, peak=1.0, factor=1.0),
        replace(SGD, factor=0.1),
        replace(SGD, momentum=0.0, dampening=1.0),
        replace(SGD, momentum=0.999),
        Group(0, 0, "Custom", 4),
    ]
]


def test_the_certain_finding_comes_first_and_the_others_are_counted() -> None:
    evidence = seen(replace(SGD, momentum=1.0, lr=-1.0))
    (alert,) = judge(evidence, (absurd_hyperparameter,)).alerts
    assert alert.severity is Severity.ERROR
    assert "lr is -1" in alert.message
    assert dict(alert.evidence)["others"] == 1
