"""The measuring pass against a slow reference, and its promises: no read, no copy of a large tensor, every kind."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sanity_watchdog.observe import tensors as measuring
from sanity_watchdog.observe.moment import Moment
from sanity_watchdog.observe.observer import is_plain
from sanity_watchdog.observe.run import Run
from sanity_watchdog.observe.strided import is_dense, measurable, sample
from sanity_watchdog.observe.tensors import BAD, EDGES, PART, TINY, ZERO, Measuring, part

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-24, 2.0**-25, 3e-40, 1e-310, 65504.0, 7e4, 1e300, 1.0, -2.5)


def slow(tensor: Tensor) -> tuple[float, float, list[int]]:
    """Largest magnitude, L2 norm and bins of all elements, one element after the other."""
    values = tensor.detach().double().flatten().tolist()
    bins = [0] * measuring.BINS
    for x in values:
        if x == 0:
            bins[ZERO] += 1
        elif not math.isfinite(x):
            bins[BAD] += 1
        else:
            octave = math.frexp(x)[1] - 1
            bins[TINY + sum(octave >= edge for edge in EDGES)] += 1
    largest = math.nan if any(map(math.isnan, values)) else max(map(abs, values))
    return largest, math.fsum(x * x for x in values) ** 0.5 if all(abs(x) < 1e150 for x in values) else math.inf, bins


def arranged(tensor: Tensor, layout: str) -> Tensor:
    """The same kind of values in another memory layout."""
    if layout == "transposed":
        return tensor.transpose(0, -1)
    if layout == "sliced":
        return torch.stack([tensor, tensor], -1)[..., 0]
    if layout == "expanded":
        return tensor[:1].expand(3, *tensor.shape[1:])
    if layout == "channels":
        return tensor[None, :, :, None].contiguous(memory_format=torch.channels_last)
    return tensor


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    dtype = draw(st.sampled_from(DTYPES))
    element = st.one_of(
        st.sampled_from(SPECIAL), st.floats(-100, 100, width=32), st.floats(-1e-6, 1e-6, allow_nan=False)
    )
    values = draw(st.lists(element, min_size=rows * columns, max_size=rows * columns))
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype).reshape(rows, columns)
    return arranged(tensor, draw(st.sampled_from(("plain", "transposed", "sliced", "expanded", "channels"))))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(tensors(), min_size=1, max_size=5), st.integers(0, 50))
def test_full_sampling_equals_the_slow_reference(given_: list[Tensor], phase: int) -> None:
    named = {f"t{i}": t for i, t in enumerate(given_)}
    rows = {row.name: row for row in Measuring().take(named, phase=phase, formats=True).read()}
    assert rows.keys() == named.keys()
    for name, tensor in named.items():
        row, (largest, norm, bins) = rows[name], slow(tensor)
        assert row.numel == tensor.numel()
        seen = sum(bins) if row.seen == tensor.numel() else row.seen
        assert row.largest == pytest.approx(float(torch.tensor(largest, dtype=torch.float32)), rel=1e-6, nan_ok=True)
        assert row.seen == sum(row.bins) == seen
        if row.seen == tensor.numel():
            assert list(row.bins) == bins
        finite = tensor.double().flatten()
        finite = finite[finite.isfinite() & (finite != 0)]
        if row.seen == tensor.numel():
            exactly = finite[finite.half().double() == finite]
            assert row.half == len(exactly)
            assert row.finer == int((exactly.bfloat16().double() != exactly).sum())
        squares = tensor.double().abs()
        if bool(((squares < 1e18) & ((squares > 1e-15) | (squares == 0))).all()):
            assert row.norm == pytest.approx(norm, rel=1e-5)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    st.integers(600, 60_000),
    st.floats(0.02, 0.98),
    st.sampled_from(DTYPES),
    st.sampled_from(("plain", "transposed", "sliced")),
    st.integers(0, 10_000),
)
def test_a_sampled_share_is_within_four_standard_errors(
    numel: int, zeros: float, dtype: torch.dtype, layout: str, phase: int
) -> None:
    generator = torch.Generator().manual_seed(numel)
    tensor = torch.randn(numel // 4, 4, generator=generator)
    tensor[torch.rand(tensor.shape, generator=generator) < zeros] = 0
    tensor = arranged(tensor.to(dtype), layout)
    (row,) = Measuring().take({"t": tensor}, phase=phase).read()
    true = float((tensor == 0).double().mean())
    assert row.seen <= measuring.MOST
    assert abs(row.zero_share - true) <= 4 * math.sqrt(true * (1 - true) / row.seen) + 1 / row.seen
    assert row.largest == float(tensor.abs().max())


@pytest.mark.parametrize("numel", [1, 5, 511, 512, 513, 1023, 1024, 4096, 100_003])
def test_samples_stay_inside_and_keep_their_size(numel: int) -> None:
    tensor = torch.arange(numel)
    for phase in (0, 1, 7, 511, 99_999):
        view = sample(tensor, 512, phase)
        assert len(view) == min(numel, 512)
        assert len(set(view.tolist())) == len(view)
        assert view.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


def test_a_huge_expanded_tensor_is_not_copied() -> None:
    big = torch.ones(1, 1).expand(1 << 20, 1 << 12)
    assert sample(big, 512).numel() <= 512
    halves = torch.zeros(1 << 21)[::2]
    assert not is_dense(halves)
    assert sample(halves, 512).numel() == 512


class Other(Tensor):
    """A tensor subclass nobody has heard of."""


KINDS = {
    "absent": (None, "absent"),
    "empty": (torch.zeros(0, 3), "empty"),
    "meta": (torch.zeros(2, device="meta"), "meta"),
    "lazy": (torch.nn.LazyLinear(3).weight, "lazy"),
    "integer": (torch.ones(3, dtype=torch.int64), "int64"),
    "csr": (torch.eye(3).to_sparse_csr(), "sparse_csr"),
    "quantized": (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
    "unknown": (torch.ones(3).as_subclass(Other), "Other"),
    "nested": (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_measured_is_skipped_with_the_word_why(kind: str) -> None:
    tensor, word = KINDS[kind]
    assert measurable(tensor) == word
    found = Measuring().take({"a": tensor, "b": torch.ones(2)})
    assert found.skipped == {"a": word}
    assert [row.name for row in found.read()] == ["b"]


def test_sparse_complex_and_float8_are_measured() -> None:
    sparse = torch.sparse_coo_tensor(torch.tensor([[1, 4]]), torch.tensor([[0.0, 3.0], [4.0, 0.0]]), (10, 2))
    turned = torch.tensor([3 + 4j, 0j]).conj()
    eight = torch.tensor([0.0, 1.0, 2.0, 448.0]).to(torch.float8_e4m3fn)
    rows = {r.name: r for r in Measuring().take({"s": sparse, "c": turned, "e": eight}).read()}
    assert (rows["s"].numel, rows["s"].seen, rows["s"].bins[ZERO], rows["s"].largest, rows["s"].norm) == (
        20,
        4,
        2,
        4,
        5,
    )
    assert (rows["c"].seen, rows["c"].bins[ZERO], rows["c"].largest, rows["c"].norm) == (4, 2, 4, 5)
    assert (rows["e"].seen, rows["e"].bins[ZERO], rows["e"].largest) == (4, 1, 448)
    assert math.isnan(rows["e"].norm)


def test_a_sharded_tensor_is_measured_by_its_shard() -> None:
    class Sharded(Tensor):
        _local_tensor: Tensor

    whole = torch.zeros(8).as_subclass(Sharded)
    whole._local_tensor = torch.tensor([0.0, 5.0])
    whole.detach = lambda: whole  # type: ignore[method-assign]
    (row,) = Measuring().take({"p": whole}).read()
    assert (row.seen, row.largest) == (2, 5)


def test_a_difference_shows_what_one_micro_batch_added() -> None:
    first, second = torch.randn(4000).half().float(), torch.randn(4000).half().float() * 2.0**-20
    pass_ = Measuring()
    before = pass_.samples({"w": first}, phase=3)
    (row,) = pass_.take({"w": first + second}, phase=3, since=before).read()
    added = sample(first + second, 512, 3) - sample(first, 512, 3)
    assert row.largest == float(added.abs().max())
    assert row.bins[ZERO] == int((added == 0).sum())
    assert math.isnan(row.norm)


def test_more_than_the_limit_rotates_through_all() -> None:
    many = dict.fromkeys((f"t{i}" for i in range(2 * PART + 1)), torch.ones(1))
    turns = [part(many, turn) for turn in range(3)]
    assert all(len(t) <= PART for t in turns)
    assert set().union(*turns) == set(many)
    few = {"a": torch.ones(1)}
    assert part(few, 5) is few


VIEWS = ("as_strided", "detach", "view", "expand", "alias")


class Counted(TorchDispatchMode):
    """Counts host reads and the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.__name__
        self.reads += "local_scalar" in name or "bincount" in name or name.startswith(("nonzero", "is_nonzero"))
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(t, Tensor) and not any(s in name for s in VIEWS):
                self.largest = max(self.largest, t.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize(("count", "numel"), [(3, 2_000_000), (400, 2_000), (2_000, 64)])
def test_the_pass_reads_nothing_and_makes_nothing_large(count: int, numel: int) -> None:
    named: dict[str, Tensor | None] = {f"t{i}": torch.ones(numel) for i in range(count)}
    with Counted() as counted:
        found = Measuring().take(named, formats=True)
    assert counted.reads == 0
    assert counted.largest <= 256 << 10
    assert sum(t.nbytes for *_, t in found.tables) <= 256 << 10
    assert len(found.read()) == count


def test_rows_of_all_devices_and_dtypes_arrive_once() -> None:
    at, got = Moment(run=Run(module=torch.nn.Module())), []
    named = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.float64), "c": torch.ones(2).half()}
    Measuring().take(named).ask(at, lambda rows: got.append([r.name for r in rows]))
    for reader, values in zip(at.readers, at.packet.read(), strict=True):
        reader(values)
    assert got == [["a", "b", "c"]]


def test_memory_that_was_given_back_is_not_looked_at() -> None:
    kept, freed = torch.ones(4), torch.ones(4)
    freed.untyped_storage().resize_(0)
    assert is_plain(kept)
    assert not is_plain(freed)
    assert Measuring().take({"kept": kept, "freed": freed}).skipped == {"freed": "freed"}
    assert is_plain(torch.empty(0))
