import pytest

from sanity_watchdog.alerts import Severity
from sanity_watchdog.checks.judge import judge
from sanity_watchdog.checks.membership import (
    foreign_in_optimizer,
    frozen_by_mistake,
    outside_optimizer,
    unregistered_module,
    without_gradient,
)
from sanity_watchdog.evidence.membership import (
    Foreign,
    Frozen,
    LossLeaves,
    Member,
    Membership,
    Reached,
    Shared,
    Stranger,
)

WEIGHT, BIAS = Member("net.0.weight", 640, True), Member("net.0.bias", 32, False)
COPY = Member("target.0.weight", 640, True, written=True)
STILL = Member("backbone.weight", 640, True, evaluating=True)
LISTED = Stranger("net.layers[0].weight", (64, 20))
MADE = Stranger("", (32, 20))
HELD = Stranger("nets[1].weight", (8, 8), held=True)
ALL = ("net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias")

FIRING = [
    (outside_optimizer, Membership(optimizers=1, trainable=4, missing=(BIAS, WEIGHT))),
    (outside_optimizer, Membership(optimizers=1, trainable=4, missing=(STILL,))),
    (outside_optimizer, Membership(optimizers=1, trainable=4, missing=(STILL, WEIGHT))),
    (foreign_in_optimizer, Membership(optimizers=1, trainable=4, foreign=(Foreign(0, (32, 20), "net.0.weight"),))),
    (foreign_in_optimizer, Membership(optimizers=1, trainable=4, foreign=(Foreign(0, (7,)), Foreign(0, (7, 7))))),
    (unregistered_module, LossLeaves(leaves=6, strangers=(LISTED, Stranger("net.layers[0].bias", (64,))))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(MADE,))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(Stranger("net.parts['a'].weight", (64, 20)),))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(Stranger("encoder.inner.weight", (64, 20)),))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(Stranger("scale", (1,), parameter=False),))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(HELD,))),
    (unregistered_module, LossLeaves(leaves=3, strangers=(MADE,), automatic=False)),
    (without_gradient, Reached(attempts=12, elements=1100, matrices=3, without=(WEIGHT, BIAS))),
    (without_gradient, Reached(attempts=12, elements=100_000, matrices=9, without=(WEIGHT, BIAS))),
    (without_gradient, Reached(attempts=1, elements=100_000, matrices=9, without=(WEIGHT,), fatal=True)),
    (
        without_gradient,
        Reached(attempts=12, elements=100_000, matrices=9, without=(WEIGHT,), left_out="cross_entropy at net.py:30"),
    ),
    (
        frozen_by_mistake,
        Frozen(parameters=4, matrices=2, trainable=ALL[2:], trained_before=ALL[:2]),
    ),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=(), no_graph=True)),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=ALL[2:], toggled=ALL[:2])),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=ALL, in_vain=("backbone",))),
    (
        frozen_by_mistake,
        Frozen(parameters=4, matrices=2, trainable=ALL[3:], beside=1, held=ALL[:3:2]),
    ),
    (frozen_by_mistake, Frozen(parameters=9, matrices=4, trainable=("a.bias", "b.bias"), beside=2)),
    (
        without_gradient,
        Reached(attempts=12, elements=100_000, matrices=9, without=(WEIGHT, BIAS), idle=(1,), cut="detach at a.py:8"),
    ),
    (foreign_in_optimizer, Membership(optimizers=1, trainable=4, aliases=(("embedding.weight", "head.weight"),))),
    (foreign_in_optimizer, Membership(optimizers=2, trainable=4, shared=(Shared(0, 1, ALL[2:], nested=True),))),
    (foreign_in_optimizer, Membership(optimizers=2, trainable=4, shared=(Shared(0, 1, ALL[:1]),))),
    (without_gradient, Reached(attempts=12, elements=1100, matrices=3, without=(WEIGHT, BIAS), waits=True)),
    (without_gradient, Reached(attempts=12, elements=1100, matrices=3, without=(COPY,))),
    (outside_optimizer, Membership(optimizers=1, trainable=4, missing=(BIAS, WEIGHT), waiting=True)),
]
QUIET = [
    (outside_optimizer, Membership(optimizers=1, trainable=4)),
    (outside_optimizer, Membership(optimizers=0, trainable=4, missing=(WEIGHT,))),
    (foreign_in_optimizer, Membership(optimizers=1, trainable=4, missing=(WEIGHT,))),
    (foreign_in_optimizer, Membership(optimizers=2, trainable=4)),
    (unregistered_module, LossLeaves(leaves=4)),
    (unregistered_module, LossLeaves(leaves=4, hidden="a reentrant checkpoint hides its part of the graph")),
    (without_gradient, Reached(attempts=12, elements=1100, matrices=3)),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=ALL)),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=ALL[2:], held=ALL[:1])),
    (frozen_by_mistake, Frozen(parameters=5, matrices=2, trainable=("temperature",), held=ALL[:3:2])),
    (frozen_by_mistake, Frozen(parameters=9, matrices=4, trainable=("b", "c", "d"), beside=3, held=("w",))),
    (frozen_by_mistake, Frozen(parameters=4, matrices=2, trainable=ALL[1::2], beside=2, held=ALL[::2])),
    (frozen_by_mistake, Frozen(parameters=2, matrices=1, trainable=("head.bias",), beside=1)),
    (frozen_by_mistake, Frozen(parameters=8, matrices=4, trainable=("norm.weight", "norm.bias"))),
]


@pytest.mark.parametrize(
    ("number", "severity"),
    [
        pytest.param(0, Severity.ERROR, id="fires-missing"),
        pytest.param(1, Severity.INFO, id="fires-missing-in-eval-is-a-note"),
        pytest.param(2, Severity.ERROR, id="fires-missing-partly-in-eval"),
        pytest.param(6, Severity.ERROR, id="fires-made-in-forward"),
        pytest.param(9, Severity.WARNING, id="fires-plain-tensor"),
        pytest.param(10, Severity.INFO, id="fires-trained-but-unregistered-is-a-note"),
        pytest.param(11, Severity.INFO, id="fires-made-in-a-manual-step-is-a-note"),
        pytest.param(12, Severity.WARNING, id="fires-large-part"),
        pytest.param(13, Severity.INFO, id="fires-small-part-is-a-note"),
        pytest.param(14, Severity.ERROR, id="fires-under-ddp"),
        pytest.param(-3, Severity.INFO, id="fires-a-part-that-may-join-in-later-is-a-note"),
        pytest.param(-2, Severity.INFO, id="fires-a-copy-written-by-hand-is-a-note"),
        pytest.param(-1, Severity.INFO, id="fires-missing-before-its-turn-is-a-note"),
    ],
)
def test_severity(number: int, severity: Severity) -> None:
    check, evidence = FIRING[number]
    (alert,) = judge(evidence, (check,)).alerts
    assert alert.severity is severity


def test_the_part_in_eval_is_no_subject_beside_a_part_that_trains() -> None:
    check, evidence = FIRING[2]
    (alert,) = judge(evidence, (check,)).alerts
    assert alert.subjects == ("net.0.weight",)
