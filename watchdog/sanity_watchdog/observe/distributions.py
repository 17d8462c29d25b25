"""Sees ``log_prob`` of torch's distributions, and of subclasses, being called in a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from typing import Any

from torch.distributions import Distribution

from .followers import Followers
from .inside import Inside
from .replaced import replaced


@contextmanager
def likelihoods(inside: Inside, followers: Followers) -> Iterator[None]:
    """Tells ``followers`` of each ``log_prob`` of torch's distributions, and of subclasses, that the user calls."""
    depth = 0

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def log_prob(self: Distribution, *args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                out = real(self, *args, **kwargs)
            finally:
                depth -= 1
            if not depth and args:
                inside.do(followers.likelihood, self, args[0], out)
            return out

        return log_prob

    kinds = [k for k in set(_kinds(Distribution)) if isfunction(vars(k).get("log_prob"))]
    with replaced({(kind, "log_prob"): wrapped for kind in kinds}):
        yield


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    below: type
    for below in type.__subclasses__(kind):
        yield from _kinds(below)
