from sanity_watchdog.checks.ranks import ranks_diverged, ranks_share_data, ranks_share_noise, unequal_batches
from sanity_watchdog.evidence.ranks import RankPrint, Replicas

Rows = tuple[tuple[int, ...], ...]


def replicas(*groups: tuple[int, ...], buffers: Rows = (), gradients: Rows = (), **kwargs: object) -> Replicas:
    prints = tuple(
        RankPrint(
            rank=rank,
            attempt=5,
            groups=g,
            gradients=gradients[rank] if gradients else g,
            buffers=buffers[rank] if buffers else (),
            batch=rank,
            samples=32,
            drawn_at="train.py:31",
        )
        for rank, g in enumerate(groups)
    )
    names = tuple(f"layer.{i}" for i in range(len(groups[0])))
    return Replicas(step=5, prints=prints, names=names, buffer_names=("queue",), **kwargs)  # type: ignore[arg-type]


APART = ((11, 12), (21, 22), (31, 32))
SAME = ((11, 11), (22, 22), (33, 33))
QUIET = [
    (ranks_diverged, replicas((1, 2, 3), (1, 2, 3))),
    (ranks_diverged, replicas((1, 2), (3, 4), apart="FSDPStrategy shards the parameters")),
    (ranks_share_data, replicas((1,), (1,), batches=((11, 12), (21, 22), (31, 32)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME[:2])),
    (ranks_share_data, replicas((1,), (1,), batches=((11, 11),) * 3)),
    (ranks_share_data, replicas((1,), (1,), batches=((0, 0),) * 3)),
    (ranks_share_data, replicas((1,), (1,), batches=(*SAME, (41, 42)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME, sharing="tensor-parallel ranks share their data")),
    (ranks_share_noise, replicas((1,), (1,), batches=APART, noises=APART)),
    (ranks_share_noise, replicas((1,), (1,), batches=SAME, noises=SAME)),
    (ranks_share_noise, replicas((1,), (1,), batches=APART, noises=((0, 0),) * 3)),
    (ranks_share_noise, replicas((1,), (1,), batches=APART, noises=((5, 5),) * 3)),
    (ranks_share_noise, replicas((1,), (1,), batches=APART[:2], noises=SAME[:2])),
    (
        ranks_share_noise,
        replicas((1,), (1,), batches=APART, noises=SAME, sharing="tensor-parallel ranks share their data"),
    ),
    (unequal_batches, replicas((1,), (1,), lengths=(8, 7), joined=True)),
    (unequal_batches, replicas((1,), (1,), lengths=(8, 8))),
    (unequal_batches, replicas((1,), (1,))),
]
FIRING = [
    (ranks_diverged, replicas((1, 2, 3), (1, 9, 8), gradients=((4, 5, 6),) * 2)),
    (ranks_diverged, replicas((1, 2), (1, 2), (1, 3), (1, 3), gradients=((4, 5),) * 4)),
    (ranks_diverged, replicas((9, 2), *[(1, 2)] * 7, gradients=((4, 5),) * 8)),
    (ranks_diverged, replicas(*[(rank, 2) for rank in range(8)], gradients=((4, 5),) * 8)),
    (ranks_diverged, replicas((1, 2, 3), (1, 9, 8), gradients=((4, 5, 6), (4, 7, 8)))),
    (ranks_diverged, replicas((1, 2, 3), (1, 9, 8), gradients=((4, 5, 6), (4, 7, 6)))),
    (ranks_diverged, replicas((1,), (1,), buffers=((5,), (6,)))),
    (ranks_share_data, replicas((1,), (1,), batches=SAME)),
    (ranks_share_noise, replicas((1,), (1,), batches=APART, noises=SAME)),
    (unequal_batches, replicas((1,), (1,), lengths=(8, 7))),
]
