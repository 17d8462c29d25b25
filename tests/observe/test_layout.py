"""Layouts against the same operations on numbers themselves."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sanity_watchdog.observe import layout
from sanity_watchdog.observe.layout import after, numbered
from sanity_watchdog.observe.operation import Operation


def replayed(shape: tuple[int, ...], axis: int, operations: list[tuple[Any, tuple[Any, ...]]]) -> tuple[Any, Tensor]:
    """What is known after the operations, and what it should be."""
    known: Tensor | None = numbered(shape[axis], axis, len(shape))
    value = known.expand(shape).clone()
    for function, args in operations:
        out = function(value, *args)
        out = out if isinstance(out, Tensor) else out[0]
        op = Operation(function, (value, *args), {}, out)
        known = after(op, [known] + [None] * (len(op.inputs) - 1))
        value = out
    return known, value


T, N, C = 6, 4, 5


@pytest.mark.parametrize(
    "operations",
    [
        [(torch.transpose, (0, 1))],
        [(torch.reshape, ((T, N, C),))],
        [(torch.reshape, ((-1, C),)), (Tensor.view, (N, T, C))],
        [(torch.permute, ((2, 0, 1),)), (torch.reshape, ((N, C, T),))],
        [(torch.flatten, ()), (torch.unflatten, (0, (2, -1)))],
        [(Tensor.__getitem__, ((slice(1, None), 2, None, ...),))],
        [(torch.unsqueeze, (1,)), (torch.squeeze, (1,))],
        [(Tensor.__getitem__, (torch.tensor([1, 3, 0]),)), (torch.transpose, (0, 2))],
        [(Tensor.__getitem__, (torch.tensor([True, False, True, True]),))],
        [(torch.index_select, (2, torch.tensor([0, -1 + C, 2])))],
        [(torch.flip, ((0, 2),)), (torch.roll, (1, 0))],
        [(torch.chunk, (2,)), (Tensor.mT.__get__, ())],
    ],
)
@pytest.mark.parametrize("axis", [0, 2])
def test_a_layout_says_where_the_numbers_are(operations: Any, axis: int) -> None:
    known, value = replayed((N, T, C), axis, operations)
    assert known is not None
    assert torch.equal(known.expand(value.shape), value)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("repeat", (2, 3, 1, 1), {}),
        ("repeat", ((3, 1, 2),), {}),
        ("tile", ((2,),), {}),
        ("tile", (), {"dims": (2, 1, 3, 1)}),
        ("repeat_interleave", (3, 0), {}),
        ("repeat_interleave", (), {"dim": 1, "repeats": 2}),
        ("repeat_interleave", (2,), {}),
        ("expand", (2, -1, -1, -1), {}),
        ("broadcast_to", ((2, N, T, C),), {}),
        ("amax", (1,), {}),
        ("amin", (), {"dim": (-1, 1), "keepdim": True}),
    ],
)
def test_a_layout_is_repeated_and_reduced(name: str, args: Any, kwargs: Any) -> None:
    known = numbered(N, 0, 3)
    value = known.expand(N, T, C).clone()
    function = getattr(torch.Tensor, name)
    out = function(value, *args, **kwargs)
    found = after(Operation(function, (value, *args), kwargs, out), [known])
    assert found is not None
    assert torch.equal(found.expand(out.shape), out)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_layouts_side_by_side(axis: int) -> None:
    a, b = numbered(N, 0, 2), numbered(N, 1, 2)
    whole = [k.expand(N, N).clone() for k in (a, b)]
    for known, given in (([a, a], [whole[0], whole[0]]), ([a, b], whole)):
        out = torch.stack(given, axis)
        found = after(Operation(torch.stack, (given, axis), {}, out), known)
        assert found is not None
        assert torch.equal(found.expand(out.shape), out)
    assert after(Operation(torch.stack, (whole,), {}, torch.stack(whole)), [a, None]) is None


def test_axes_along_which_nothing_changes_any_more_are_given_up() -> None:
    known, _ = replayed((N, C), 0, [(torch.repeat_interleave, (3, 0)), (Tensor.view, (N, 3, C))])
    assert known is not None
    assert known.shape == (N, 1, 1)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.repeat_interleave, (torch.tensor([1, 2, 0, 1]), 0)),
        (Tensor.repeat, (0, 1, 1)),
        (torch.amax, ()),
        (torch.sort, (0,)),
        (torch.cumsum, (0,)),
        (Tensor.__getitem__, (torch.tensor([[2, 0], [1, 3]]),)),
        (Tensor.__getitem__, ((torch.tensor([2, 0]), torch.tensor([0, 1])),)),
        (Tensor.__getitem__, ([2, 0, 1],)),
        (torch.sum, (0,)),
    ],
)
def test_what_moves_values_by_themselves_ends_a_layout(function: Any, args: Any) -> None:
    assert replayed((N, T, C), 0, [(function, args)])[0] is None


def test_layouts_that_differ_end_where_they_meet() -> None:
    a, b = numbered(N, 0, 2), numbered(N, 1, 2)
    x = torch.zeros(N, N)
    added = Operation(torch.add, (x, x), {}, x)
    assert after(added, [a, b]) is None
    assert after(added, [a, numbered(N, 0, 2)]) is a


def test_what_would_have_to_be_written_out_is_given_up_when_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MOST", N * T - 1)
    assert replayed((N, T, C), 0, [(torch.reshape, ((T, N, C),))])[0] is None
    assert replayed((N, T, C), 0, [(torch.reshape, ((N, C, T),))])[0] is not None
