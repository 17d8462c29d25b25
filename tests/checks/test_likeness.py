from dataclasses import replace
from typing import Any

from sanity_watchdog.checks import Check
from sanity_watchdog.checks.likeness import attraction_alone, compared_with_itself
from sanity_watchdog.evidence.base import Evidence
from sanity_watchdog.evidence.targets import Attraction, Likeness

ALIKE = Likeness(function="mse_loss", where="train.py:31", samples=6, exact=True, attempt=8)

FIRING: list[tuple[Check[Any], Evidence]] = [
    (compared_with_itself, ALIKE),
    (compared_with_itself, replace(ALIKE, function="kl_div", exact=False, samples=9, attempt=34)),
    (compared_with_itself, replace(ALIKE, function="cross_entropy", exact=False, attempt=34, views=True)),
    (attraction_alone, Attraction(lines=("train.py:31", "train.py:32"))),
]
QUIET: list[tuple[Check[Any], Evidence]] = [
    (compared_with_itself, Likeness(function="mse_loss", attempt=55)),
    (compared_with_itself, replace(ALIKE, attempt=5, samples=5)),
    (compared_with_itself, replace(ALIKE, exact=False)),
    (compared_with_itself, replace(ALIKE, samples=3)),
    (attraction_alone, Attraction()),
]
