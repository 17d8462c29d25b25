"""What several processes say of themselves at one sample."""

import math
from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class RankPrint(Evidence):
    """One rank's fingerprints; sent to rank zero, judged there beside the others'.

    Attributes:
        rank: the process.
        attempt: number of the optimizer step that the sample belongs to.
        groups: one integer per group of parameters; equal where all bits are equal.
        gradients: likewise, of some elements of their gradients as the optimizer gets them.
        buffers: likewise, of the buffers that replicas share.
        batch: of the batch's largest tensors; 0 where there were none.
        samples: number of samples in the batch.
        noise: of the random generators after a step that drew numbers from them; 0 where none did.
        drawn_at: the user's line that drew numbers; those of dropout do not count.
        squares: this rank's summand of the squared norm of sharded gradients; NaN where they are replicas.
    """

    rank: int
    attempt: int
    groups: tuple[int, ...]
    gradients: tuple[int, ...] = ()
    buffers: tuple[int, ...] = ()
    batch: int = 0
    samples: int = 0
    noise: int = 0
    drawn_at: str = ""
    squares: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Replicas(Evidence):
    """All ranks' fingerprints of the same sample.

    Attributes:
        prints: by rank.
        names: first parameter of each group. buffer_names: first buffer of each group.
        apart: why the parameters need not be equal; empty where they must.
        sharing: why the ranks are meant to see the same data; empty where each has its own.
        batches: for the last samples, the ranks' batch fingerprints, oldest first.
        noises: likewise, of their generators.
        lengths: training batches by rank that an epoch has and the run can reach; empty where they are not known.
        joined: does the strategy join uneven inputs?
    """

    prints: tuple[RankPrint, ...]
    names: tuple[str, ...]
    buffer_names: tuple[str, ...] = ()
    apart: str = ""
    sharing: str = ""
    batches: tuple[tuple[int, ...], ...] = ()
    noises: tuple[tuple[int, ...], ...] = ()
    lengths: tuple[int, ...] = ()
    joined: bool = False
