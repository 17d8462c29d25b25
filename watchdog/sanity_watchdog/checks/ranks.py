"""Several processes: replicas that differ, data that does not."""

from collections import Counter
from collections.abc import Sequence

from ..alerts import Severity, several
from ..evidence.ranks import Replicas
from .check import Findings, Skip, check

SAMPLES = 3
"""Samples in which all ranks must hold the same batch; a padded sampler can make a single one equal."""
CHANGED = "make every change of these tensors the same on all ranks: broadcast from rank zero what only one rank knows"
NOT_AVERAGED = (
    "let the strategy average these gradients: parameters must exist and require a gradient when it wraps the module,"
    " and backward (not autograd.grad, not no_sync) must follow a forward of the wrapped module"
)


@check("WD601", "ranks-diverged", Severity.ERROR, Replicas)
def ranks_diverged(seen: Replicas) -> Findings:
    """Replicas of the model no longer hold the same parameters.

    **What it sees.** At every sample an exact integer fingerprint of the parameters on each rank, in at most 128
    groups. The first group that differs names the first parameter; the ranks that are in the minority are the odd
    ones. The gradients that the optimizer got tell why: averaged ones are equal on all ranks. Buffers that differ
    are an INFO, apart from BatchNorm statistics and those that the strategy broadcasts before each step.

    **Why it matters.** Data-parallel training averages gradients, not weights: what once differs stays different.
    Each rank then trains a model of its own with gradients of the others', and only rank zero's is saved.

    **How to fix.** Make every change of a parameter the same on all ranks.

    ```python
    codes.data = h[:32]                                  # before: from this rank's first batch
    codes.data.copy_(self.all_gather(h)[0][:32])         # after: the same on every rank
    ```

    Initialise before DDP wraps the module, or broadcast from rank zero; never change parameters in rank-dependent
    branches. Where the gradients differ as well, they are not averaged: parameters that were frozen, replaced or not
    there when DDP wrapped the module have none of its hooks, and ``torch.autograd.grad`` calls none.

    ```python
    def on_train_start(self): self.head.requires_grad_(True)     # before: DDP has wrapped the frozen head
    strategy = DDPStrategy(find_unused_parameters=True)          # after: trainable at the start, used later
    ```

    **When to ignore.** Methods that average weights only now and then differ in between on purpose; Lightning's own
    post-local SGD is known and skipped.

    **Limits.** Replicas only: sharded parameters are skipped. With more than 128 parameters the name is that of the
    first parameter in a group of neighbours.

    **Sources.** The contract of ``DistributedDataParallel``; TrainCheck's study of silent errors (BLOOM's diverged
    layer norms).
    """
    if seen.apart:
        yield Skip(seen.apart)
        return
    gradients = [p.gradients for p in seen.prints]
    for what, names, severity, rows in (
        ("parameters", seen.names, Severity.ERROR, [p.groups for p in seen.prints]),
        ("buffers", seen.buffer_names, Severity.INFO, [p.buffers for p in seen.prints]),
    ):
        apart = [i for i in range(min(map(len, rows))) if len({row[i] for row in rows}) > 1]
        if not apart:
            continue
        values = [row[apart[0]] for row in rows]
        common = _most_common(values)
        odd = [p.rank for p, value in zip(seen.prints, values, strict=True) if value != common]
        others = "rank 0's" if values[0] == common and len(odd) * 2 >= len(rows) else "the others'"
        own = what == "parameters" and all(len({row[i : i + 1] for row in gradients}) > 1 for i in apart)
        text = f"{what} of rank {several(odd)} differ from {others} in {len(apart)} of {len(rows[0])} groups"
        yield ranks_diverged.alert(
            seen,
            f"{text}: so do their gradients" if own else text,
            severity=severity,
            subjects=[names[i] for i in apart if i < len(names)],
            hint=NOT_AVERAGED if own else CHANGED,
            evidence={"groups": len(apart), "of": len(rows[0]), "attempt": seen.prints[0].attempt},
        )


def _most_common(values: Sequence[int]) -> int:
    """Where several are as common, the one that comes first."""
    return max(values, key=Counter(values).__getitem__)


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
    if seen.sharing:
        yield Skip(seen.sharing)
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


@check("WD603", "ranks-share-noise", Severity.INFO, Replicas)
def ranks_share_noise(seen: Replicas) -> Findings:
    """The ranks see different data and draw the same random numbers for them.

    **What it sees.** The state of the random generators after the step, on every rank: equal in three samples in which
    the ranks hold different batches, where the step draws numbers of its own (``randn``, ``randint``, ``normal``, …;
    dropout does not count).

    **Why it matters.** ``seed_everything`` gives every rank the same seed. The i-th sample of each rank then gets the
    same noise, time step or negative sample: gradients stay right on average, but averaging over the ranks takes away
    less of the noise than their number promises.

    **How to fix.** Seed each rank on its own once the parameters are there.

    ```python
    def on_train_start(self):
        torch.manual_seed(1234 + self.global_rank)
    ```

    **When to ignore.** Where ranks are meant to draw the same, as for a mask or a size that all of them must agree on.
    It never is more than an INFO: an equal seed on all ranks is the usual practice.

    **Limits.** Generators of one's own, NumPy's and Python's are not looked at; neither are compiled steps.

    **Sources.** PyTorch's notes on reproducibility; Lightning's ``seed_everything``.
    """
    if seen.sharing:
        yield Skip(seen.sharing)
        return
    rows = [(noise, batch) for noise, batch in zip(seen.noises, seen.batches, strict=False) if all(noise)]
    if len(rows) < SAMPLES:
        yield Skip("no step draws random numbers of its own")
        return
    last = rows[-SAMPLES:]
    same = all(len(set(noise)) == 1 and len(set(batch)) > 1 for noise, batch in last)
    if same and len({noise[0] for noise, _ in last}) > 1:
        yield ranks_share_noise.alert(
            seen,
            f"all {len(seen.prints)} ranks drew the same random numbers in each of the last {SAMPLES} samples",
            where=seen.prints[0].drawn_at,
            hint="seed each rank on its own in on_train_start: torch.manual_seed(seed + self.global_rank)",
            evidence={"samples": len(last), "ranks": len(seen.prints)},
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

    **When to ignore.** Where nothing that waits for all ranks happens at the end of an epoch, and the run ends by
    ``max_steps``. Inside ``torch.distributed.algorithms.Join``, which is made for uneven inputs, it stays quiet, and
    where ``max_steps`` ends the run before the shortest epoch.

    **Limits.** Loaders without a length are not counted.

    **Sources.** PyTorch's note on uneven inputs in ``DistributedDataParallel``.
    """
    if not seen.lengths:
        yield Skip("loaders without a length")
        return
    if seen.joined:
        yield Skip("uneven inputs are joined")
        return
    least, most = min(seen.lengths), max(seen.lengths)
    if least != most:
        short = [rank for rank, n in enumerate(seen.lengths) if n == least]
        yield unequal_batches.alert(
            seen,
            f"rank {several(short)} has {least} batches an epoch, others have up to {most}",
            hint="give every rank as many batches: DistributedSampler, drop_last=True or limit_train_batches",
            evidence={"least": least, "most": most},
        )
