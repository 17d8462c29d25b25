"""Reshapes that tear values apart, and those that keep neighbours together."""

import pytest
import torch

from sanity_watchdog.observe.operation import Operation
from sanity_watchdog.observe.suspects import RESHAPED, Seen, behind, suspects

Shape = tuple[int, ...]
SHAPES: dict[str, tuple[Shape, Shape, bool]] = {
    "frames joined over channels": ((8, 4, 16, 20), (8, 20, 64), True),
    "frames joined, time last": ((8, 4, 20, 16), (8, 64, 20), True),
    "channels and frames, as they lie": ((8, 4, 16, 20), (8, 64, 20), False),
    "pixels, as they lie": ((8, 5, 6, 6), (8, 5, 36), False),
    "pixels before channels": ((8, 5, 6, 6), (8, 36, 5), True),
    "heads joined without a transpose": ((8, 4, 10, 6), (8, 10, 24), True),
    "heads joined": ((8, 10, 4, 6), (8, 10, 24), False),
    "heads split without a transpose": ((8, 10, 24), (8, 4, 10, 6), True),
    "heads split": ((8, 10, 24), (8, 10, 4, 6), False),
    "places of heads to a map": ((8, 2, 64, 4), (8, 2, 4, 8, 8), True),
    "places of heads to a map, transposed": ((8, 2, 4, 64), (8, 2, 4, 8, 8), False),
    "places to a square map": ((8, 64, 4), (8, 4, 8, 8), True),
    "channels to the end of a square map": ((8, 4, 64), (8, 8, 8, 4), True),
    "places to rows, or groups of them": ((8, 64, 4), (8, 4, 16, 4), False),
    "channels split in groups": ((8, 12, 10), (8, 3, 4, 10), False),
    "boxes of a small map": ((8, 4, 4, 8), (8, 32, 4), False),
    "boxes of a map": ((8, 5, 4, 8), (8, 40, 4), False),
    "frames stacked in pairs": ((8, 64, 8, 32), (8, 32, 512), False),
    "axes of one": ((8, 4, 1, 6), (8, 6, 4), False),
    "all in one": ((8, 4, 5, 6), (8, 120), False),
    "samples joined as well": ((8, 4, 5, 6), (32, 5, 6), False),
    "of equal length": ((8, 4, 4, 6), (8, 4, 24), False),
}


@pytest.mark.parametrize("case", SHAPES)
def test_axes_joined_or_split_across_another_are_told(case: str) -> None:
    old, new, told = SHAPES[case]
    given = torch.zeros(old)
    op = Operation(torch.Tensor.view, (given, new), {}, given.view(new))
    found = [s for s in suspects(op, 8) if s.kind == RESHAPED]
    assert bool(found) is told
    assert not told or found[0].shapes == (old, new)


def test_of_several_those_are_meant_that_look_at_what_is_made_of_a_place() -> None:
    here, elsewhere = (torch.randn(4, 5, requires_grad=True) * 2 for _ in range(2))
    seen = [Seen("unmasked", "attention", "", node=t.softmax(-1).grad_fn) for t in (elsewhere, here)]
    assert behind(seen, here) == seen[1:]
    assert behind(seen[:1], here) == seen[:1]
