"""Which optimizer attempts are looked at."""

import itertools

EARLY = frozenset((0, 1, 2, 3, 5, 8, 13, 21, 34, 55))
SETTLED = 64
"""Batches and attempts after which observers look in samples only, but for what they need from every step."""
DENSE = max(EARLY)
"""Attempt after which samples come in pairs: where both see the same things, one of them is enough."""


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
