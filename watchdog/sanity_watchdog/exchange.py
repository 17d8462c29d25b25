"""Messages between the processes of one run, through the process group's own key-value store.

No collective is ever called, so a rank that skips, dies or has fewer batches cannot hang another one because of the
watchdog. Traffic: one message of at most ``LIMIT`` bytes per rank and sample, appended to a key that rank zero reads
whole, so that its own work does not grow by a round trip for each rank.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed

from .observe.run import Run
from .records import decode, encode

LIMIT = 1 << 14
"""Bytes of one message."""
PATIENCE = 5.0
"""Seconds that a rank waits for another one's word, before the first step and at the end; never in between."""
WAITING = 8
"""Samples that may wait for a slow rank's message; what comes later is lost to rank zero, not to the rank's record."""
LAST = -1
"""Number of the last messages, which are read together however many came before."""


class Exchange:
    """One rank's view of the store.

    Args:
        store: a ``torch.distributed`` store that can append. rank: this process. world: number of processes.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self._store, self.rank, self.world = store, rank, world
        self.sent = 0
        self._first = 0
        self._read: dict[int, int] = {}
        self._seen: dict[int, int] = {}

    @classmethod
    def of_process_group(cls, run: Run, fit: int) -> "Exchange | None":
        """An exchange over the default process group, or None where there is none, or no store that can append."""
        if run.world < 2 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return None
        inside = torch.distributed.distributed_c10d
        find = getattr(inside, "_get_default_store", None)  # private; without it ranks are judged one by one
        store = find() if find is not None else None
        if store is None or not store.has_extended_api():
            return None
        return cls(inside.PrefixStore(f"sanity_watchdog/{fit}", store), run.rank, run.world)

    def post(self, message: Mapping[str, Any], last: bool = False) -> None:
        """Send a message to rank zero; too long a one is dropped but for its head. Nothing is waited for."""
        text = encode(message)
        if len(text) > LIMIT:
            text = encode({k: v for k, v in message.items() if k in ("rank", "step", "epoch", "length")})
        self._send(_key(LAST if last else self.sent), text)
        self.sent += 1

    def _send(self, key: str, text: str) -> None:
        self._store.append(key, text + "\n")

    def collect(self) -> Iterator[dict[str, Any]]:
        """Messages that have arrived since the last call; for rank zero, which reads each once.

        Its own number of samples says which messages may be there.
        """
        while self._first < self.sent and (self._whole(self._first) or self._first < self.sent - WAITING):
            self._forget(self._first)
            self._first += 1
        for number in range(self._first, self.sent):
            yield from self._news(number)

    def collect_last(self, wait: float = 0.0) -> Iterator[dict[str, Any]]:
        """The last messages, until every other rank has sent its own, or ``wait`` seconds have passed."""
        until = time.monotonic() + wait
        while True:
            yield from self._news(LAST)
            if self._whole(LAST) or time.monotonic() > until:
                return
            time.sleep(0.01)

    def _news(self, number: int) -> Iterator[dict[str, Any]]:
        if self._whole(number) or not self._has(_key(number)):
            return
        start = self._read.get(number, 0)
        text = bytes(self._store.get(_key(number)))
        self._read[number] = len(text)
        found = text[start:].splitlines()
        self._seen[number] = self._seen.get(number, 0) + len(found)
        yield from map(decode, found)

    def _whole(self, number: int) -> bool:
        return self._seen.get(number, 0) >= self.world - 1

    def _forget(self, number: int) -> None:
        self._seen.pop(number, None)
        if self._read.pop(number, 0):
            with contextlib.suppress(Exception):  # not every store can forget
                self._store.delete_key(_key(number))

    def stop(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Tell every rank to stop, and why; the first rank to do so is heard, and what it said is returned."""
        return dict(decode(self._store.compare_set("stop", "", encode(message))))

    def stopped(self) -> dict[str, Any] | None:
        """What the rank that wants to stop said."""
        return dict(decode(self._store.get("stop"))) if self._has("stop") else None

    def together(self, word: str) -> None:
        """Wait until every rank has said ``word``, at most ``PATIENCE`` seconds."""
        if self._store.add(f"{word}/ranks", 1) == self.world:
            self._store.set(f"{word}/all", "1")
        with contextlib.suppress(Exception):  # a time-out of the store is an answer, too
            self._store.wait([f"{word}/all"], timedelta(seconds=PATIENCE))

    def _has(self, key: str) -> bool:
        return bool(self._store.check([key]))


def _key(number: int) -> str:
    return "last" if number == LAST else f"m/{number}"
