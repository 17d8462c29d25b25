"""Which optimizer attempts are looked at."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EARLY = frozenset((0, 1, 2, 3, 5, 8, 13, 21, 34, 55))
PATIENCE = 64
"""Batches that may pass before the first optimizer step and still be read at once; after that a run that never steps
is sampled by batches."""
SETTLED = 64
"""Batches and attempts after which observers look in samples only, but for what they need from every step."""
EPOCHS = 4
"""Epochs whose beginnings and ends are looked at, whatever comes; after those a row of steps at rest goes on across."""
DENSE = max(EARLY)
"""Attempt after which samples come in pairs: where both see the same things, one of them is enough."""
EVERY = 101
"""Default distance of late pairs, and the least at which they may be put off."""
SHARE = 0.01
"""Share of the time of a settled run that looking may take: the promise."""
PAIRS = 10
"""Late pairs that are looked at whatever they cost: most faults show in the first thousand steps."""
RARER = 4
"""A run has not stepped for a while after that many times the batches which it usually took for a step."""
STRIDE = 13
"""Where that is too much, only each thirteenth pair is looked at: no period from 2 to 12 falls in step with it. Steps
of a millisecond, of which a look costs three, are looked at for half a per cent of their time."""


class Pace:
    """When to look: by plan, and more rarely where a long run's steps are so short that looking would cost too much.

    Args:
        every: distance of late pairs in optimizer attempts; one below the default is kept to, whatever it costs.
        together: must several processes look at the same attempts? They cannot know each other's costs.
        clock: seconds.
    """

    def __init__(self, every: int, together: bool = False, clock: Callable[[], float] = time.perf_counter) -> None:
        self._every = every
        self._may_put_off = every >= EVERY and not together
        self._clock = clock
        self._began = 0.0
        self._spent = 0.0
        self._next = -1
        self._granted = -1
        self._attempt = self._since = self._look = 0
        self._usual = 0.0

    def idle(self, attempt: int, batch: int) -> int:
        """Batches without an attempt before this one, where that is long for a run which has stepped; else 0."""
        idle = batch - self._since if attempt == self._attempt > 0 else 0
        return idle if idle >= max(PATIENCE, RARER * self._usual) else 0

    def due(self, attempt: int, ahead: int, batch: int) -> bool:
        """Is the batch looked at, with one of the ``ahead`` attempts from ``attempt`` on? Asked at each batch."""
        if not attempt and batch >= PATIENCE:
            return sampled(batch, self._every)
        if self._stopped(attempt, batch):
            return True
        if self._next < attempt:
            self._next = next_sample(attempt, self._every)
        if self._next >= attempt + ahead:
            return False
        if self._may_put_off and self._next > DENSE:
            pair = self._next // self._every
            if pair != self._granted and self._puts_off(pair):
                self._next = (self._granted + STRIDE) * self._every
                return self._next < attempt + ahead
            self._granted = pair
        return True

    def steps_left(self, attempt: int, ahead: int) -> int:
        """Attempts from this one on, in batches of ``ahead``, before one is due. To be asked when none is."""
        return (self._next - attempt) // ahead * ahead

    def _stopped(self, attempt: int, batch: int) -> bool:
        """Is the batch looked at because there has been no attempt for long? Ever more rarely."""
        if attempt != self._attempt:
            if self._attempt:
                self._usual = max(self._usual, (batch - self._since) / (attempt - self._attempt))
            self._attempt, self._since, self._look = attempt, batch, 0
        idle = self.idle(attempt, batch)
        if not idle or idle < self._look:
            return False
        self._look = 2 * idle
        return True

    def _puts_off(self, pair: int) -> bool:
        if self._granted < 0:
            self._began, self._spent = self._clock(), 0.0
        if not PAIRS < pair < self._granted + STRIDE:
            return False
        return self._spent > SHARE * (self._clock() - self._began)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What is done inside is the cost of looking."""
        start = self._clock()
        try:
            yield
        finally:
            self._spent += self._clock() - start


def next_sample(attempt: int, every: int) -> int:
    """The first sampled attempt that is not before ``attempt``."""
    return next(i for i in itertools.count(attempt) if sampled(i, every))


def sampled(attempt: int, every: int) -> bool:
    """Is the ``attempt``-th optimizer step (of any optimizer, from 0) looked at?

    Early attempts are sampled densely, later ones in pairs ``(s, s + 1)``: with an odd prime ``every`` a pair meets
    both of two alternating heads and every phase of a longer alternation in turn.
    """
    if attempt <= DENSE:
        return attempt in EARLY or every == 1
    return attempt % every == 0 or (attempt - 1) % every == 0
