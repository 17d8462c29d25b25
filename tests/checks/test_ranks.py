from sanity_watchdog.checks.ranks import ranks_diverged, ranks_share_data, unequal_batches
from sanity_watchdog.evidence.ranks import RankPrint, Replicas


def replicas(*groups: tuple[int, ...], buffers: tuple[tuple[int, ...], ...] = (), **kwargs: object) -> Replicas:
    prints = tuple(
        RankPrint(rank=rank, attempt=5, groups=g, buffers=buffers[rank] if buffers else (), batch=rank, samples=32)
        for rank, g in enumerate(groups)
    )
    names = tuple(f"layer.{i}" for i in range(len(groups[0])))
    return Replicas(step=5, prints=prints, names=names, buffer_names=("queue",), **kwargs)  # type: ignore[arg-type]


SAME = ((11, 11), (22, 22), (33, 33))
QUIET = [
    (ranks_diverged, replicas((1, 2, 3), (1, 2, 3))),
    (ranks_diverged, replicas((1, 2), (3, 4), sharded="FSDPStrategy shards the parameters")),
    (ranks_share_data, replicas((1,), (1,), batches=((11, 12), (21, 22), (31, 32)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME[:2])),
    (ranks_share_data, replicas((1,), (1,), batches=((11, 11),) * 3)),
    (ranks_share_data, replicas((1,), (1,), batches=((0, 0),) * 3)),
    (ranks_share_data, replicas((1,), (1,), batches=(*SAME, (41, 42)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME, sharded="ModelParallelStrategy shards the parameters")),
    (unequal_batches, replicas((1,), (1,), lengths=(8, 8))),
    (unequal_batches, replicas((1,), (1,))),
]
FIRING = [
    (ranks_diverged, replicas((1, 2, 3), (1, 9, 8))),
    (ranks_diverged, replicas((1, 2), (1, 2), (1, 3), (1, 3))),
    (ranks_diverged, replicas((1,), (1,), buffers=((5,), (6,)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME)),
    (unequal_batches, replicas((1,), (1,), lengths=(8, 7))),
]
