"""Several processes: replicas that differ, data that does not."""

from collections.abc import Sequence

from ..alerts import Severity
from ..evidence.ranks import Replicas
from .check import Findings, Skip, check

SAMPLES = 3
"""Samples in which all ranks must hold the same batch; a padded sampler can make a single one equal."""


@check("WD601", "ranks-diverged", Severity.ERROR, Replicas)
def ranks_diverged(seen: Replicas) -> Findings:
    """Replicas of the model no longer hold the same parameters.

    **What it sees.** At every sample an exact integer fingerprint of the parameters on each rank, in at most 128
    groups. The first group that differs names the first parameter. Buffers that differ, apart from BatchNorm
    statistics, are an INFO.

    **Why it matters.** Data-parallel training averages gradients, not weights: what once differs stays different.
    Each rank then trains a model of its own with gradients of the others', and only rank zero's is saved.

    **How to fix.** Make every change of a parameter the same on all ranks.

    ```python
    codes.data = h[:32]                                  # before: from this rank's first batch
    codes.data.copy_(self.all_gather(h)[0][:32])         # after: the same on every rank
    ```

    Initialise before DDP wraps the module, or broadcast from rank zero; run the forward through the wrapped module,
    so that its hooks fire; never change parameters in rank-dependent branches.

    **When to ignore.** Methods that average weights only now and then, such as local SGD, differ in between on purpose.

    **Limits.** Replicas only: sharded parameters are skipped. With more than 128 parameters the name is that of the
    first parameter in a group of neighbours.

    **Sources.** The contract of ``DistributedDataParallel``; TrainCheck's study of silent errors (BLOOM's diverged
    layer norms).
    """
    if seen.sharded:
        yield Skip(seen.sharded)
        return
    for what, names, severity in (
        ("parameters", seen.names, Severity.ERROR),
        ("buffers", seen.buffer_names, Severity.INFO),
    ):
        rows = [p.groups if what == "parameters" else p.buffers for p in seen.prints]
        apart = [i for i in range(min(map(len, rows))) if len({row[i] for row in rows}) > 1]
        if not apart:
            continue
        others = [p.rank for p, row in zip(seen.prints, rows, strict=True) if row[apart[0]] != rows[0][apart[0]]]
        yield ranks_diverged.alert(
            seen,
            f"{what} of rank {_listed(others)} differ from rank 0's in {len(apart)} of {len(rows[0])} groups",
            severity=severity,
            subjects=[names[i] for i in apart if i < len(names)],
            hint="make every change of these tensors the same on all ranks: broadcast from rank zero, or call the"
            " wrapped module so that gradients are averaged",
            evidence={"groups": len(apart), "of": len(rows[0]), "attempt": seen.prints[0].attempt},
        )


@check("WD602", "ranks-share-data", Severity.ERROR, Replicas)
def ranks_share_data(seen: Replicas) -> Findings:
    """All ranks train on the same batches.

    **What it sees.** Fingerprints of the batches of all ranks in three samples: equal across ranks in each, different
    from sample to sample.

    **Why it matters.** The ranks do the same work several times: an epoch costs as many GPUs as there are and brings
    the progress of one.

    **How to fix.** Give each rank its own share.

    ```python
    DataLoader(data, sampler=RandomSampler(data))        # with use_distributed_sampler=False: the same everywhere
    DataLoader(data, sampler=DistributedSampler(data))   # each rank its own share
    ```

    An ``IterableDataset`` must divide itself by ``torch.distributed.get_rank()`` and by worker.

    **When to ignore.** Where ranks share a batch on purpose, as in tensor or pipeline parallelism.

    **Limits.** 256 elements of the four largest tensors of a batch are compared; augmentation that differs by rank
    hides shared samples.

    **Sources.** ``torch.utils.data.distributed.DistributedSampler``; Lightning's ``use_distributed_sampler``.
    """
    if "ModelParallel" in seen.sharded:
        yield Skip("model-parallel ranks share their data")
        return
    rows = [row for row in seen.batches if all(row)]
    if len(rows) < SAMPLES:
        yield Skip(f"fewer than {SAMPLES} samples with a batch on every rank")
        return
    last = rows[-SAMPLES:]
    if all(len(set(row)) == 1 for row in last) and len({row[0] for row in last}) > 1:
        yield ranks_share_data.alert(
            seen,
            f"all {len(last[0])} ranks got the same batch in each of the last {SAMPLES} samples",
            hint="use a DistributedSampler (Lightning adds one unless use_distributed_sampler=False), or divide the"
            " IterableDataset by rank",
            evidence={"samples": len(last), "ranks": len(last[0]), "batch_size": seen.prints[0].samples},
        )


@check("WD604", "unequal-batches", Severity.WARNING, Replicas)
def unequal_batches(seen: Replicas) -> Findings:
    """The ranks have different numbers of batches per epoch.

    **What it sees.** The number of training batches per epoch that each rank's loop counted before the first step.

    **Why it matters.** Gradients are averaged in every step: the rank with fewer batches leaves, and the others wait
    for it until the process group's time-out (30 minutes by default).

    **How to fix.** Let every rank have the same number: ``DistributedSampler`` pads, ``drop_last=True`` cuts; for
    streams set ``limit_train_batches``::

        Trainer(strategy="ddp")                               # before: streams of unequal length
        Trainer(strategy="ddp", limit_train_batches=1000)     # after: the same on every rank

    **When to ignore.** Where the strategy joins uneven inputs, as ``torch.distributed.algorithms.Join`` does.

    **Limits.** Loaders without a length are not counted.

    **Sources.** PyTorch's note on uneven inputs in ``DistributedDataParallel``.
    """
    if not seen.lengths:
        yield Skip("loaders without a length")
        return
    least, most = min(seen.lengths), max(seen.lengths)
    if least != most:
        short = [rank for rank, n in enumerate(seen.lengths) if n == least]
        yield unequal_batches.alert(
            seen,
            f"rank {_listed(short)} has {least} batches an epoch, others have up to {most}",
            hint="give every rank as many batches: DistributedSampler, drop_last=True or limit_train_batches",
            evidence={"least": least, "most": most},
        )


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
