"""The measuring pass: exact extremes and norms, everything else from a strided sample, one packed result.

::

    measuring = Measuring()
    found = measuring.take({"net.weight": p.grad, ...}, phase=7 * number_of_the_sample)
    found.skipped                       # {"net.embedding": "sparse_csr"}: what could not be looked at, and why
    found.ask(at, then)                 # then(rows) gets one Statistics per measured tensor, in order, on the host
    found.read()                        # the same at once; waits for the device

``take`` queues device work and returns; it reads nothing back. Its temporaries stay below 1 MiB for any model.
"""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..evidence.base import Evidence
from .moment import Moment
from .sharding import local
from .strided import NORMED, measurable, sample

TOTAL = 1 << 17
"""Elements sampled in all; spread evenly over the tensors."""
MOST, LEAST = 512, 32
"""Elements sampled per tensor; the standard error of a share p of n elements is sqrt(p (1 - p) / n)."""
CHUNK = 1 << 14
"""Elements per round; a round needs about 40 bytes of temporaries for each."""
PART = 2_000
"""Tensors measured per sample; of more than these a rotating part (17 µs of host work each)."""
EDGES = (-25, -24, -23, -22, -20, -18, -14, -6, 2, 10)
"""Octaves that begin a bin: float16 lives in [2^-24, 2^16), its normal numbers from 2^-14."""
ZERO, BAD, TINY = 0, 1, 2
"""Bins of exact zeros, of NaN and infinities, and of what is below the first edge."""
BINS = TINY + len(EDGES) + 1
LAYOUTS = {torch.float32: (torch.int32, 23, 255, 127), torch.float64: (torch.int64, 52, 2047, 1023)}
"""Integer of the same width, bits of the fraction, largest exponent field (NaN, infinity) and exponent bias."""
EXACT = 2
HALF, FINER, SMALLEST, FIRST_BIN = range(EXACT, EXACT + 4)
WIDTH = FIRST_BIN + BINS
HALF_LIMIT = 65504.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """One tensor at one moment.

    Attributes:
        name: name under which it was given.
        numel: elements of the whole tensor, or of this rank's shard.
        seen: elements in the sample.
        largest: exact largest magnitude, NaN where a NaN is in it; of the sample alone for a difference or float8.
        norm: exact L2 norm in float32, infinite beyond its range; NaN for a difference or float8.
        half: sampled non-zero finite elements that float16 holds exactly (0 unless formats were asked for).
        finer: of these, elements that bfloat16 cannot hold.
        smallest: smallest non-zero magnitude in the sample; NaN where there is none, or it was not asked for.
        bins: sampled elements by octave: zeros, non-finite, below 2^-25, then from each of ``EDGES`` to the next.
    """

    name: str
    numel: int
    seen: int
    largest: float
    norm: float
    half: int
    finer: int
    smallest: float
    bins: tuple[int, ...]

    @property
    def zero_share(self) -> float:
        """Share of exact zeros in the sample."""
        return self.bins[ZERO] / self.seen

    @property
    def live(self) -> int:
        """Sampled elements that are neither zero nor non-finite."""
        return self.seen - self.bins[ZERO] - self.bins[BAD]

    @property
    def finite(self) -> bool:
        """No NaN and no infinity anywhere in the tensor."""
        return math.isfinite(self.largest)

    @property
    def rms(self) -> float:
        """Root mean square of all elements."""
        return self.norm / math.sqrt(self.numel)

    def octave(self, exponent: int) -> int:
        """Sampled elements with |x| from 2^exponent, one of ``EDGES``, to the next edge."""
        return self.bins[TINY + 1 + EDGES.index(exponent)]

    def below(self, exponent: int) -> int:
        """Sampled elements with 0 < |x| < 2^exponent, one of ``EDGES``."""
        return sum(self.bins[TINY : TINY + 1 + EDGES.index(exponent)])

    def error(self, share: float) -> float:
        """Standard error of a share that was estimated from the sample."""
        return math.sqrt(max(share * (1 - share), 0.0) / self.seen) if self.seen < self.numel else 0.0


@dataclass
class Found:
    """What a pass took: one packed table per device, and what was left out.

    Attributes:
        skipped: name to the word that says why it was not measured.
        tables: per device ``(names, numels, seen, (P, WIDTH) float32 tensor)``.
    """

    skipped: dict[str, str]
    tables: list[tuple[list[str], list[int], list[int], Tensor]]

    def ask(self, at: Moment, then: Callable[[list[Statistics]], Iterable[Evidence] | None]) -> None:
        """Send the tables with the sample's transfer; ``then`` gets all rows once. Nothing measured: never called."""
        rows: list[Statistics] = []
        for i, (names, numels, seen, table) in enumerate(self.tables):

            def reader(
                values: Mapping[str, Tensor],
                about: tuple[list[str], list[int], list[int]] = (names, numels, seen),
                last: bool = i == len(self.tables) - 1,
            ) -> Iterable[Evidence] | None:
                rows.extend(statistics(*about, values["table"]))
                return then(rows) if last else None

            at.ask({"table": table}, reader)

    def read(self) -> list[Statistics]:
        """All rows, at once; waits for the device."""
        return [row for names, numels, seen, table in self.tables for row in statistics(names, numels, seen, table)]


def statistics(names: list[str], numels: list[int], seen: list[int], table: Tensor) -> list[Statistics]:
    """Rows of a ``(P, WIDTH)`` table."""
    return [
        Statistics(
            name,
            numel,
            n,
            row[0],
            row[1],
            int(row[HALF]),
            int(row[FINER]),
            row[SMALLEST] if row[SMALLEST] < math.inf else math.nan,
            tuple(map(int, row[FIRST_BIN:])),
        )
        for name, numel, n, row in zip(names, numels, seen, table.tolist(), strict=True)
    ]


def part(tensors: Mapping[str, Tensor | None], turn: int) -> Mapping[str, Tensor | None]:
    """All of at most ``PART`` tensors, else every k-th, beginning at another one each ``turn``."""
    parts = -(-len(tensors) // PART)
    if parts <= 1:
        return tensors
    return {name: t for i, (name, t) in enumerate(tensors.items()) if i % parts == turn % parts}


class Measuring:
    """Measures named tensors of any kind. Keeps nothing but small index tensors."""

    def __init__(self, total: int = TOTAL, most: int = MOST) -> None:
        self._total, self._most = total, most
        self._segments: dict[tuple[torch.device, tuple[int, ...]], Tensor] = {}
        self._bin_of: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    @torch.no_grad()
    def take(
        self,
        tensors: Mapping[str, Tensor | None],
        *,
        phase: int = 0,
        formats: bool = False,
        smallest: bool = False,
        since: Mapping[str, Tensor] | None = None,
    ) -> Found:
        """Queue the measurement.

        Args:
            tensors: tensors by name, in the order that the rows shall have (grouped by device and dtype).
            phase: where the samples begin; another number each time.
            formats: also count which elements float16 holds exactly, to tell what the values passed through.
            smallest: also look for the smallest magnitude.
            since: earlier ``samples`` of some of them with this ``phase``; those are measured as the difference.
        """
        groups, skipped = self._grouped(tensors)
        most = self._per_tensor(groups)
        tables = []
        for (device, _), group in groups.items():
            table = torch.zeros(len(group), WIDTH, dtype=torch.float32, device=device)
            table[:, SMALLEST] = math.inf
            numels = [local(t).numel() for t in (tensors[name] for name, _ in group) if t is not None]
            seen: list[int] = []
            step = max(1, CHUNK // most)
            for i in range(0, len(group), step):
                round_ = group[i : i + step]
                views = [sample(t, most, phase) for _, t in round_]
                if since:
                    views = [v - since[n] if n in since else v for v, (n, _) in zip(views, round_, strict=True)]
                counts = tuple(map(len, views))
                seen += counts
                self._count(torch.cat(views), counts, table[i : i + step], formats, smallest)
            table[:, :EXACT] = extremes([t for _, t in group])
            if since:
                self._sampled_extremes(group, table, most, phase, since)
            tables.append(([name for name, _ in group], numels, seen, table))
        return Found(skipped, tables)

    @torch.no_grad()
    def samples(self, tensors: Mapping[str, Tensor | None], *, phase: int = 0) -> dict[str, Tensor]:
        """Copies of the elements that ``take`` would sample with this ``phase``, by name."""
        groups, _ = self._grouped(tensors)
        most = self._per_tensor(groups)
        return {name: sample(t, most, phase).clone() for group in groups.values() for name, t in group}

    def _grouped(
        self, tensors: Mapping[str, Tensor | None]
    ) -> tuple[dict[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]], dict[str, str]]:
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]] = {}
        skipped = {}
        for name, tensor in tensors.items():
            values = measurable(tensor)
            if isinstance(values, str):
                skipped[name] = values
            else:
                groups.setdefault((values.device, values.dtype), []).append((name, values))
        return groups, skipped

    def _per_tensor(self, groups: Mapping[tuple[torch.device, torch.dtype], list[tuple[str, Tensor]]]) -> int:
        count = sum(map(len, groups.values()))
        return min(self._most, max(LEAST, self._total // max(count, 1)))

    def _segment(self, counts: tuple[int, ...], device: torch.device) -> Tensor:
        """Which row each element of a packed sample belongs to, times the row's width."""
        if (device, counts) not in self._segments:
            if len(self._segments) >= 64:
                self._segments.clear()
            rows = torch.repeat_interleave(torch.arange(len(counts)) * WIDTH, torch.tensor(counts))
            self._segments[device, counts] = rows.to(device, torch.int32)
        return self._segments[device, counts]

    def _bins(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Column of the table by exponent field; zeros share theirs with the smallest numbers."""
        if (device, dtype) not in self._bin_of:
            _, _, largest, bias = LAYOUTS[dtype]
            bins = [TINY + bisect.bisect(EDGES, field - bias) for field in range(largest)] + [BAD]
            self._bin_of[device, dtype] = torch.tensor(bins, device=device).add_(FIRST_BIN)
        return self._bin_of[device, dtype]

    def _count(self, values: Tensor, counts: tuple[int, ...], table: Tensor, formats: bool, smallest: bool) -> None:
        """Count the packed ``values`` into the rows of ``table``; the bin follows from the exponent's own bits."""
        device = values.device
        x = values if values.dtype in LAYOUTS else values.float()
        integer, fraction, largest, _ = LAYOUTS[x.dtype]
        exponent = x.view(integer).bitwise_right_shift(fraction).bitwise_and_(largest)
        segment, zero = self._segment(counts, device), x == 0
        index = self._bins(device, x.dtype).index_select(0, exponent).masked_fill_(zero, FIRST_BIN + ZERO)
        index.add_(segment)
        one = torch.ones(1, dtype=torch.float32, device=device)
        flat = table.view(-1)
        flat.scatter_add_(0, index, one.expand(len(x)))
        if formats:
            live = (zero | (exponent == largest)).logical_not_()
            half = (x.half() == x).logical_and_(live)
            rows = segment.long()
            flat.scatter_add_(0, rows + HALF, half.float())
            flat.scatter_add_(0, rows + FINER, half.logical_and_(x.bfloat16() != x).float())
        if smallest:
            magnitudes = x.abs().masked_fill_(zero, math.inf).float()
            flat.scatter_reduce_(0, segment.long().add_(SMALLEST), magnitudes, "amin")

    def _sampled_extremes(
        self, group: list[tuple[str, Tensor]], table: Tensor, most: int, phase: int, since: Mapping[str, Tensor]
    ) -> None:
        for i, (name, tensor) in enumerate(group):
            if name in since:
                table[i, 0] = (sample(tensor, most, phase) - since[name]).abs().amax()
                table[i, 1] = math.nan


def extremes(group: list[Tensor]) -> Tensor:
    """``(P, 2)`` largest magnitude and L2 norm in float32 of tensors of one device and dtype, without temporaries."""
    first = group[0]
    if first.dtype not in NORMED:
        largest = torch.stack([sample(t, MOST).float().abs().amax() for t in group])
        return torch.stack([largest, torch.full_like(largest, math.nan)], 1)
    if first.device.type == "cpu":  # order inf is not vectorised there: nine times slower than aminmax
        ends = torch.stack([end for t in group for end in t.aminmax()]).view(-1, 2)
        largest = ends.abs().amax(1).float()
    else:
        largest = torch.stack(torch._foreach_norm(group, math.inf, torch.float32))
    wide = torch.float64 if first.dtype is torch.float64 else torch.float32
    norms = torch.stack(torch._foreach_norm(group, 2, wide)).float()
    return torch.stack([largest, norms], 1)
