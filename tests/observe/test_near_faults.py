"""Runs of the corpus whose faults lie near each other, and healthy ones that look like them."""

import pytest

from tests.corpus import CASES
from tests.corpus.run import run

NAMES = (
    "added-mask-turned-round",
    "both-answers-of-a-sigmoid",
    "choices-kept-as-a-column",
    "cleared-before-each-part-of-a-step",
    "critic-that-learns-from-its-loss-and-never-steps",
    "frozen-by-an-attribute-of-a-module",
    "last-states-of-two-directions-viewed-as-rows",
    "margin-of-a-column-and-a-row",
    "overlap-returned-as-the-loss",
    "pixels-divided-by-255-twice",
    "places-counted-along-the-batch",
    "several-steps-of-a-critic-cleared-once",
    "softmax-over-the-queries-of-an-einsum",
    "step-before-the-second-loss",
    "recurrence-over-the-batch-behind-convolutions",
    "teacher-that-forgets-its-buffers",
    "view-beside-itself",
)
HEALTHY = (
    "distilled-per-pixel",
    "gradients-of-each-task-put-together-by-hand",
    "gradients-of-the-input-by-a-backward",
    "one-random-code-for-all-steps-of-a-sample",
    "order-of-all-pairs-from-one-column",
    "steps-up-before-each-step-down",
    "time-brought-first-behind-a-convolution",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_is_named_and_its_repaired_twin_is_quiet(name: str) -> None:
    faulty, repaired = run(CASES[name]), run(CASES[name + "-fixed"])
    assert faulty.first_named, faulty.messages
    assert not faulty.strays
    assert not faulty.broken
    assert not repaired.alarms, repaired.messages
    assert not repaired.broken


@pytest.mark.parametrize("name", HEALTHY)
def test_what_looks_like_it_and_is_meant_is_quiet(name: str) -> None:
    result = run(CASES[name])
    assert not result.alarms, result.messages
    assert not result.broken
