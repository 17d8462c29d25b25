"""Messages between the processes of one run, through the process group's own key-value store.

No collective is ever called, so a rank that skips, dies or has fewer batches cannot hang another one because of the
watchdog. Traffic: one ``set`` of at most ``LIMIT`` bytes per rank and sample, and on rank zero one ``check`` and
``get`` for each; a stop adds one key. A thousand ranks thus cost rank zero about a thousand round trips of 50 to
100 µs in a sample (0.1 s), spread over the 100 steps between two samples: 1 ms a step.
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


class Exchange:
    """One rank's view of the store.

    Args:
        store: a ``torch.distributed`` store; keys are under a prefix of this run.
        rank: this process. world: number of processes.
    """

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self._store, self.rank, self.world = store, rank, world
        self.sent = 0
        self._next = dict.fromkeys(range(world), 0)

    @classmethod
    def of_process_group(cls, run: Run, fit: int) -> "Exchange | None":
        """An exchange over the default process group, or None where there is none (or no store behind it)."""
        if run.world < 2 or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return None
        inside = torch.distributed.distributed_c10d
        find = getattr(inside, "_get_default_store", None)  # private; without it ranks are judged one by one
        if find is None:
            return None
        store = inside.PrefixStore(f"sanity_watchdog/{fit}", find())
        return cls(store, run.rank, run.world)

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a message to rank zero; too long a one is dropped but for its head."""
        text = encode(message)
        if len(text) > LIMIT:
            text = encode({k: v for k, v in message.items() if k in ("step", "epoch", "attempt")})
        self._store.set(f"m/{self.rank}/{self.sent}", text)
        self.sent += 1

    def collect(self, wait: float = 0.0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Messages that have arrived since the last call, as ``(rank, message)``; rank zero reads each once.

        With ``wait`` it asks until every other rank has sent as many as this one, at most that many seconds.
        """
        until = time.monotonic() + wait
        while True:
            for rank in range(self.world):
                while rank != self.rank and self._has(key := f"m/{rank}/{self._next[rank]}"):
                    yield rank, decode(self._store.get(key))
                    with contextlib.suppress(Exception):  # not every store can forget
                        self._store.delete_key(key)
                    self._next[rank] += 1
            behind = any(n < self.sent for r, n in self._next.items() if r != self.rank)
            if not behind or time.monotonic() > until:
                return
            time.sleep(0.01)

    def stop(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Tell every rank to stop, and why; the first rank to do so is heard, and what it said is returned."""
        return dict(decode(self._store.compare_set("stop", "", encode(message))))

    def stopped(self) -> dict[str, Any] | None:
        """What the rank that wants to stop said."""
        return dict(decode(self._store.get("stop"))) if self._has("stop") else None

    def together(self, word: str) -> None:
        """Wait until every rank has said ``word``, at most ``PATIENCE`` seconds."""
        self._store.set(f"{word}/{self.rank}", "1")
        keys = [f"{word}/{rank}" for rank in range(self.world)]
        with contextlib.suppress(Exception):  # a time-out of the store is an answer, too
            self._store.wait(keys, timedelta(seconds=PATIENCE))

    def _has(self, key: str) -> bool:
        return bool(self._store.check([key]))
