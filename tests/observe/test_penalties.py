"""Lengths of slopes, and what they are taken of."""

import pytest
import torch
from torch import Tensor

from tests.corpus.penalties import Length, Mix, Penalised, per_sample, samples, whole
from tests.runs import assert_awake, codes, watched


def by_pixel(real: Tensor, made: Tensor) -> Tensor:
    alpha = torch.rand_like(real)
    return (1 - alpha) * real + alpha * made


def detached(real: Tensor, made: Tensor) -> Tensor:
    return by_pixel(real, made).detach()


CASES: dict[str, tuple[Mix, Length, bool]] = {
    "whole": (per_sample, whole, False),
    "of rows": (per_sample, lambda s: s.norm(2, 1), True),
    "with a little more": (per_sample, lambda s: torch.linalg.vector_norm(s + 1e-8, dim=1), True),
    "by hand": (per_sample, lambda s: torch.sqrt((s**2).sum(dim=2)), True),
    "by hand, whole": (per_sample, lambda s: torch.sqrt((s**2).sum(dim=(1, 2))), False),
    "by pixel": (by_pixel, whole, True),
    "by pixel, detached": (detached, whole, True),
}


@pytest.mark.parametrize("case", CASES)
def test_only_pieces_are_told(case: str) -> None:
    mix, length, told = CASES[case]
    dog = watched(Penalised((4, 6), mix, length), samples(4, 6), max_steps=8)
    assert_awake(dog)
    assert codes(dog) == (["WD118"] if told else [])
