"""Messages through the store, without processes: once, in order, bounded, and never waited for."""

import time
from typing import Any

from sanity_watchdog.alerts import Alert, Severity
from sanity_watchdog.assembly import MOST, Assembly
from sanity_watchdog.evidence.ranks import RankPrint
from sanity_watchdog.exchange import LIMIT, WAITING, Exchange
from sanity_watchdog.logger import DiagnosticsLogger
from sanity_watchdog.observe.run import Run
from sanity_watchdog.settings import Settings
from sanity_watchdog.summary import RunInfo
from tests.runs import mlp


class Store(dict[str, Any]):
    """What the exchange needs of a ``torch.distributed`` store; counts the round trips of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def _count(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1

    def append(self, key: str, value: str) -> None:
        self._count("append")
        self[key] = self.get_now(key) + value.encode()

    def get_now(self, key: str) -> bytes:
        return bytes(super().get(key, b""))

    def set(self, key: str, value: str) -> None:
        self._count("set")
        self[key] = value.encode()

    def add(self, key: str, amount: int) -> int:
        self[key] = super().get(key, 0) + amount
        return int(self[key])

    def compare_set(self, key: str, expected: str, value: str) -> bytes:
        return bytes(self.setdefault(key, value.encode()))

    def check(self, keys: list[str]) -> bool:
        self._count("check")
        return all(key in self for key in keys)

    def get(self, key: str) -> bytes:  # type: ignore[override]
        self._count("get")
        return self.get_now(key)

    def delete_key(self, key: str) -> None:
        del self[key]

    def wait(self, keys: list[str], timeout: Any) -> None:
        if not all(key in self for key in keys):
            raise RuntimeError("time-out")


def two(store: Store) -> tuple[Exchange, Exchange]:
    return Exchange(store, 0, 2), Exchange(store, 1, 2)


def test_messages_arrive_once_in_order_and_are_forgotten() -> None:
    store = Store()
    zero, one = two(store)
    one.post({"step": 1})
    one.post({"step": 2})
    zero.sent = 2
    assert list(zero.collect()) == [{"step": 1}, {"step": 2}]
    assert list(zero.collect()) == []
    assert not store


def test_what_comes_late_is_taken_later() -> None:
    store = Store()
    zero, one, two = (Exchange(store, rank, 3) for rank in range(3))
    one.post({"rank": 1})
    zero.sent = 1
    assert list(zero.collect()) == [{"rank": 1}]
    two.post({"rank": 2})
    assert list(zero.collect()) == [{"rank": 2}]
    list(zero.collect())
    assert not store


def test_a_silent_rank_costs_no_memory() -> None:
    store = Store()
    zero, one, _ = (Exchange(store, rank, 3) for rank in range(3))
    for _ in range(100):
        one.post({})
        zero.sent += 1
        list(zero.collect())
    assert len(store) <= WAITING + 1
    assert len(zero._read) <= WAITING + 1
    assert len(zero._seen) <= WAITING + 1


def test_a_message_too_long_keeps_its_head() -> None:
    store = Store()
    zero, one = two(store)
    one.post({"rank": 1, "step": 1, "epoch": 0, "length": 4, "alerts": ["x" * LIMIT]})
    zero.sent = 1
    assert list(zero.collect()) == [{"rank": 1, "step": 1, "epoch": 0, "length": 4}]


def test_waiting_ends() -> None:
    zero = Exchange(Store(), 0, 2)
    start = time.monotonic()
    assert list(zero.collect_last(wait=0.05)) == []
    assert time.monotonic() - start < 5
    zero.together("here")


def test_last_words_are_read_however_many_came_before() -> None:
    store = Store()
    zero, one = two(store)
    for _ in range(3):
        one.post({"step": 1})
    one.post({"step": 9}, last=True)
    assert list(zero.collect_last()) == [{"step": 9}]


def test_a_stop_is_seen_by_all() -> None:
    store = Store()
    zero, one = two(store)
    assert zero.stopped() is None
    first = {"rank": 1, "attempt": 4, "alerts": []}
    assert one.stop(first) == first
    assert zero.stopped() == first == zero.stop({"rank": 0, "attempt": 5, "alerts": []})


def member(store: Store, rank: int, world: int) -> Assembly:
    logger = DiagnosticsLogger(Settings.make(fail_on=None))
    logger.open(RunInfo(rank=rank, world=world))
    return Assembly(Exchange(store, rank, world), Run(mlp(), world=world, rank=rank, batches_per_epoch=9), logger)


def printed(rank: int, attempt: int) -> RankPrint:
    return RankPrint(rank=rank, attempt=attempt, step=attempt, groups=(1, 2, 3, 4), batch=10 * attempt + rank)


def test_the_work_of_rank_zero_does_not_grow_with_the_ranks() -> None:
    trips = []
    for world in (4, 64):
        store = Store()
        ranks = [member(store, rank, world) for rank in range(world)]
        for attempt in range(3):
            for rank in reversed(range(world)):
                ranks[rank].keep(printed(rank, attempt))
                ranks[rank].between(attempt, 0)
        assert store.calls["append"] == 3 * (world - 1), "one message of each rank but zero in each sample"
        assert {"WD601", "WD604"} <= ranks[0]._logger._judged
        trips.append(store.calls["check"] + store.calls["get"])
    assert trips[0] == trips[1] <= 4 * 3


def test_alerts_that_do_not_fit_wait_for_the_next_message() -> None:
    store = Store()
    zero, one = member(store, 0, 2), member(store, 1, 2)
    for n in range(MOST + 2):
        one._logger.adopt(Alert(f"WD9{n:02}", "some-fault", Severity.ERROR, "text", ranks=(1,)))
    for attempt in range(2):
        one.keep(printed(1, attempt))
        one.between(attempt, 0)
        zero.keep(printed(0, attempt))
        zero.between(attempt, 0)
        assert len(zero._logger.alerts) == (MOST, MOST + 2)[attempt]
    assert [a.count for a in zero._logger.alerts] == [1] * (MOST + 2)


def test_another_rank_clears_nobodys_alert_but_its_own() -> None:
    from sanity_watchdog.evidence.parameters import Parameters

    logger = DiagnosticsLogger(Settings.make(fail_on=None))
    for code, ranks in (("WD303", (1,)), ("WD301", (0, 1))):
        logger.adopt(Alert(code, "some-fault", Severity.ERROR, "text", ranks=ranks))
    logger.take(Parameters(attempt=3, traces=()))
    assert {key[0] for key in logger._open} == {"WD303"}
