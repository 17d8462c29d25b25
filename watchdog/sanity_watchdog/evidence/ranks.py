"""What several processes say of themselves at one sample."""

from dataclasses import dataclass

from .base import Evidence


@dataclass(frozen=True, kw_only=True)
class RankPrint(Evidence):
    """One rank's fingerprints; sent to rank zero, judged there beside the others'.

    Attributes:
        rank: the process.
        attempt: number of the optimizer step that the sample belongs to.
        groups: one integer per group of parameters; equal where all bits are equal.
        buffers: likewise, of the buffers that replicas share.
        batch: of the batch's largest tensors; 0 where there were none.
        samples: number of samples in the batch.
    """

    rank: int
    attempt: int
    groups: tuple[int, ...]
    buffers: tuple[int, ...] = ()
    batch: int = 0
    samples: int = 0


@dataclass(frozen=True, kw_only=True)
class Replicas(Evidence):
    """All ranks' fingerprints of the same sample.

    Attributes:
        prints: by rank.
        names: first parameter of each group. buffer_names: first buffer of each group.
        sharded: why the parameters are not replicas of one another; empty where they are.
        batches: for the last samples, the ranks' batch fingerprints, oldest first.
        lengths: training batches per epoch by rank; empty where they are not known.
    """

    prints: tuple[RankPrint, ...]
    names: tuple[str, ...]
    buffer_names: tuple[str, ...] = ()
    sharded: str = ""
    batches: tuple[tuple[int, ...], ...] = ()
    lengths: tuple[int, ...] = ()
